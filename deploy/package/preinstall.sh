#!/bin/sh
# Before the files are there, so that they can belong to the group. DPKG_ROOT is the system to
# install into, if it is not this one.
set -e
if [ -n "$DPKG_ROOT" ]; then
	! grep -qs '^xds-relay:' "$DPKG_ROOT/etc/passwd" || exit 0
else
	! getent passwd xds-relay >/dev/null || exit 0
fi
useradd ${DPKG_ROOT:+--prefix "$DPKG_ROOT"} --system --user-group --no-create-home --home-dir /var/lib/xds-relay --shell /usr/sbin/nologin xds-relay
