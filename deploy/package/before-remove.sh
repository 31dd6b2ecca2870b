#!/bin/sh
# Runs before the files are removed. The first argument is `remove` (deb) or 0 (rpm) unless another
# version follows.
set -e
case "${1:-}" in
    remove | deconfigure | 0)
        if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
            systemctl --no-reload disable --now portunus.service portunus.socket || true
        fi
        ;;
esac
