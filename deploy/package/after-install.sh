#!/bin/sh
# Runs after the files are in place, at an installation and at an upgrade. DPKG_ROOT is set when dpkg
# installs into another root without entering it.
set -e
root="${DPKG_ROOT:-}"
if ! grep -q '^portunus:' "$root/etc/passwd" 2>/dev/null; then
    useradd ${root:+--prefix "$root"} --system --user-group --no-create-home \
        --home-dir /var/lib/portunus --shell /usr/sbin/nologin portunus
fi
ids=$(sed -n 's/^portunus:[^:]*:\([0-9]*\):\([0-9]*\):.*/\1:\2/p' "$root/etc/passwd")
mkdir -p "$root/var/lib/portunus"
chown "$ids" "$root/var/lib/portunus"
chmod 0700 "$root/var/lib/portunus"
# Secrets are readable by the service alone.
chown "0:${ids#*:}" "$root/etc/portunus" "$root/etc/portunus/portunus.env"
chmod 0750 "$root/etc/portunus"
chmod 0640 "$root/etc/portunus/portunus.env"
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # A running gateway finishes its calls and continues as the new version.
    systemctl try-restart portunus.service || true
fi
