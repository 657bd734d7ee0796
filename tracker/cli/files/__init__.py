"""Export and import files: torrents, users, denials and allowed clients as CSV or JSON lines; .torrent files."""
