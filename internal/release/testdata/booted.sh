# What an administrator does with the package, in the system that boot.sh has booted.
set -e
fail() {
	echo "FAIL: $1"
	systemctl status xds-relay --no-pager -l || true
	exit 1
}
pid() { systemctl show -p MainPID --value xds-relay; }

dpkg -i /packages/v0.1.0.deb
[ "$(systemctl is-active xds-relay)" = inactive ] || fail "it is started by the installation"
# In namespaces that are not the first ones systemd cannot make a /dev for a unit. All other settings hold.
if [ "$1" = nodev ]; then
	mkdir -p /run/systemd/system/xds-relay.service.d
	printf '[Service]\nPrivateDevices=no\n' >/run/systemd/system/xds-relay.service.d/here.conf
	systemctl daemon-reload
fi
systemctl enable --now xds-relay || fail "it does not start"
systemctl status xds-relay | grep 'Status: "0 clients; ready"' || fail "it does not say how it is"
first=$(pid)
grep -q '^CapBnd:.0*$' "/proc/$first/status" || fail "it has capabilities"
grep -q '^Seccomp:.2$' "/proc/$first/status" || fail "it has no filter of system calls"
[ "$(stat -c '%U %a' /var/lib/xds-relay)" = "xds-relay 700" ] || fail "the state is not its own"
xds-relay ps

systemctl reload xds-relay || fail "it does not reload"
cp -p /etc/xds-relay/relay.yaml /etc/xds-relay/relay.yaml.kept
echo 'nonsense: 1' >>/etc/xds-relay/relay.yaml
! systemctl reload xds-relay || fail "it reloads a configuration with a mistake"
cat /etc/xds-relay/relay.yaml.kept >/etc/xds-relay/relay.yaml
rm /etc/xds-relay/relay.yaml.kept

for version in v0.2.0 v0.1.0 v0.2.0; do
	before=$(pid)
	dpkg --force-confdef -i "/packages/$version.deb"
	[ "$(pid)" != "$before" ] && [ "$(systemctl is-active xds-relay)" = active ] || fail "it does not run after the installation of $version"
done

stuck=$(pid)
kill -STOP "$stuck"
for _ in $(seq 60); do
	case $(pid) in "$stuck" | 0) sleep 1 ;; *) break ;; esac
done
[ "$(pid)" != "$stuck" ] && [ "$(systemctl show -p NRestarts --value xds-relay)" = 1 ] || fail "it stays stuck"

dpkg --purge xds-relay
[ "$(systemctl is-active xds-relay)" = inactive ] || fail "it runs after it is purged"
! pgrep -x xds-relay || fail "a process is left"
! ls -d /etc/xds-relay /var/lib/xds-relay 2>/dev/null || fail "files are left"
echo all is well
