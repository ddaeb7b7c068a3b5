#!/usr/bin/env bash
# ffmpeg with threads of its filters, its encoder and its decoder.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
run ffmpeg -nostdin -v error -filter_threads 4 -f lavfi -i testsrc=size=320x240:rate=30:duration=4 \
  -vf 'scale=640:480,unsharp' -c:v mpeg4 -bitexact -threads 4 -y film.avi || die 'the encoder'
sha256sum <film.avi
run ffmpeg -nostdin -v error -threads 4 -i film.avi -f framemd5 -bitexact - >frames ||
  die 'the decoder'
# A line for each of the 120 frames.
[ "$(grep -vc '^#' frames)" -eq 120 ] || die "$(wc -l <frames) lines of frames"
sha256sum <frames
