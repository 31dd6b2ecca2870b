#!/bin/sh
# Runs after the files are removed. /var/lib/portunus stays, because it has the ledger; so does the
# user that owns it.
set -e
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
