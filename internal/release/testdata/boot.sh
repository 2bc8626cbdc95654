# Boots a copy of this system, in namespaces of its own, with systemd as its first process and no services but systemd's own.
# $1 is an empty directory, $2 has packages.
set -e
mount -t tmpfs none "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" none "$1/root"
mkdir "$1/root/packages" "$1/root/around"
cp "$2"/* "$1/root/packages"
cd "$1/root"
mount -t proc none proc
mount -t sysfs none sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs none dev
for d in null zero full random urandom tty; do cp -a "/dev/$d" "dev/$d"; done
mkdir dev/pts dev/shm
mount -t devpts none dev/pts
mount -t tmpfs none run
mount -t tmpfs none tmp
rm -rf etc/systemd/system/*.wants
pivot_root . around
umount -l /around
exec env -i container=other PATH=/usr/bin:/usr/sbin:/bin:/sbin /lib/systemd/systemd --system --unit=basic.target
