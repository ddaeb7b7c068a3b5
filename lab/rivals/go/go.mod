module rival

go 1.22
