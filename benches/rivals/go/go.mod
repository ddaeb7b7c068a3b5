module rival

go 1.26
