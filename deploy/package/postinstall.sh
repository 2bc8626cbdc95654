#!/bin/sh
# Called with "configure" and the version before, if any, by dpkg, and with how many versions there now are by rpm.
set -e
[ "$1" = configure ] || [ "$1" = 1 ] || [ "$1" = 2 ] || exit 0
[ ! -d /run/systemd/system ] || systemctl daemon-reload
if [ "$1" = 2 ] || [ -n "$2" ]; then
	# An upgrade. The old process writes its snapshot and sends its clients away one by one; the new one
	# begins with the snapshot.
	[ ! -d /run/systemd/system ] || systemctl try-restart xds-relay
	exit 0
fi
# It is not started: which control plane it is for only you know.
echo "xds-relay: set upstream.address in /etc/xds-relay/relay.yaml, try it with: xds-relay check -c /etc/xds-relay/relay.yaml"
echo "xds-relay: then start it, now and with the system: systemctl enable --now xds-relay"
