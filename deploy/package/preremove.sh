#!/bin/sh
# Called with "remove" by dpkg, and with 0 by rpm, if no other version takes its place.
set -e
[ "$1" = remove ] || [ "$1" = 0 ] || exit 0
[ ! -d /run/systemd/system ] || systemctl disable --now xds-relay
