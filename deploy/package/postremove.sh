#!/bin/sh
# Called with "remove", and later perhaps "purge", by dpkg, and with 0 by rpm, which knows no purge.
set -e
case "$1" in
remove | 0)
	[ ! -d /run/systemd/system ] || systemctl daemon-reload
	;;
purge)
	# The snapshot. The user stays, so that nobody else gets its number and, with it, what files of it
	# there are elsewhere.
	rm -rf /var/lib/xds-relay
	;;
esac
