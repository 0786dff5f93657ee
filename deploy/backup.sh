#!/bin/sh
# A backup of a running coordinator, on SQLite or PostgreSQL alike; the last KEEP are kept.
#   URL=https://coordinator.example.org:8765 TOKEN_FILE=ops.token CA=keys/ca.pem FOLDER=backups deploy/backup.sh
# From systemd: fedbandit-backup.service, backup.env. To restore, with the coordinator down: fedbandit restore backups/NEWEST.db --config federation.toml
set -eu
: "${URL:?the address of the coordinator}"
FOLDER=${FOLDER:-/var/lib/fedbandit/backups}
KEEP=${KEEP:-7}
FEDBANDIT=${FEDBANDIT:-fedbandit}
mkdir -p "$FOLDER"
new="$FOLDER/$(date -u +%Y%m%dT%H%M%S.%NZ).db"
set -- --url "$URL"
[ -z "${TOKEN_FILE:-}" ] || set -- "$@" --token-file "$TOKEN_FILE"
[ -z "${CA:-}" ] || set -- "$@" --ca "$CA"
# What a backup has left that was killed; not what another one writes at the moment.
find "$FOLDER" -name '*.db.*.partial' -mmin +60 -exec rm -- {} +
"$FEDBANDIT" backup "$new" "$@"
# Only now that the new one is whole may the oldest go.
ls -1 "$FOLDER"/*.db | sort -r | tail -n "+$((KEEP + 1))" | while IFS= read -r old; do rm -- "$old"; done
