#!/bin/sh
# Before the files are there, so that they can belong to the group.
set -e
getent passwd xds-relay >/dev/null || useradd --system --user-group --no-create-home --home-dir /var/lib/xds-relay --shell /usr/sbin/nologin xds-relay
