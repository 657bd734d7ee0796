"""Tables of sites, as their programs name and type them: the columns that the tracker writes, and some that it must not
touch."""

UNIT3D = (
    """CREATE TABLE users (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, username VARCHAR(255) NOT NULL,
    passkey CHAR(32) NOT NULL UNIQUE, group_id INT NOT NULL DEFAULT 3, uploaded BIGINT UNSIGNED NOT NULL DEFAULT 0,
    downloaded BIGINT UNSIGNED NOT NULL DEFAULT 0, seedbonus DECIMAL(12,2) NOT NULL DEFAULT 0,
    can_download BOOLEAN NOT NULL DEFAULT 1, is_donor BOOLEAN NOT NULL DEFAULT 0,
    is_lifetime BOOLEAN NOT NULL DEFAULT 0, deleted_at TIMESTAMP NULL) ENGINE=InnoDB""",
    """CREATE TABLE `groups` (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, slug VARCHAR(255) NOT NULL UNIQUE,
    name VARCHAR(255) NOT NULL, download_slots INT NULL, is_freeleech BOOLEAN NOT NULL DEFAULT 0,
    is_double_upload BOOLEAN NOT NULL DEFAULT 0, is_immune BOOLEAN NOT NULL DEFAULT 0) ENGINE=InnoDB""",
    """CREATE TABLE torrents (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255) NOT NULL,
    info_hash BINARY(20) NOT NULL UNIQUE, size DOUBLE NOT NULL DEFAULT 0, leechers INT UNSIGNED NOT NULL DEFAULT 0,
    seeders INT UNSIGNED NOT NULL DEFAULT 0, times_completed INT UNSIGNED NOT NULL DEFAULT 0,
    balance BIGINT NOT NULL DEFAULT 0, free SMALLINT NOT NULL DEFAULT 0, doubleup BOOLEAN NOT NULL DEFAULT 0,
    status SMALLINT NOT NULL DEFAULT 1, deleted_at TIMESTAMP NULL, created_at TIMESTAMP NULL,
    updated_at TIMESTAMP NULL) ENGINE=InnoDB""",
    """CREATE TABLE history (user_id INT UNSIGNED NOT NULL, torrent_id INT UNSIGNED NOT NULL,
    agent VARCHAR(64) NOT NULL DEFAULT '', uploaded BIGINT UNSIGNED NOT NULL DEFAULT 0,
    actual_uploaded BIGINT UNSIGNED NOT NULL DEFAULT 0, client_uploaded BIGINT UNSIGNED NOT NULL DEFAULT 0,
    downloaded BIGINT UNSIGNED NOT NULL DEFAULT 0, refunded_download BIGINT UNSIGNED NOT NULL DEFAULT 0,
    actual_downloaded BIGINT UNSIGNED NOT NULL DEFAULT 0, client_downloaded BIGINT UNSIGNED NOT NULL DEFAULT 0,
    seeder BOOLEAN NOT NULL DEFAULT 0, active BOOLEAN NOT NULL DEFAULT 0, seedtime BIGINT UNSIGNED NOT NULL DEFAULT 0,
    immune BOOLEAN NOT NULL DEFAULT 0, hitrun BOOLEAN NOT NULL DEFAULT 0, prewarned_at TIMESTAMP NULL,
    created_at TIMESTAMP NULL, updated_at TIMESTAMP NULL, completed_at TIMESTAMP NULL,
    PRIMARY KEY (user_id, torrent_id)) ENGINE=InnoDB""",
    """CREATE TABLE peers (peer_id BINARY(20) NOT NULL, ip VARBINARY(16) NOT NULL, port SMALLINT UNSIGNED NOT NULL,
    agent VARCHAR(64) NOT NULL, uploaded BIGINT UNSIGNED NOT NULL, downloaded BIGINT UNSIGNED NOT NULL,
    `left` BIGINT UNSIGNED NOT NULL, seeder BOOLEAN NOT NULL, created_at TIMESTAMP NULL, updated_at TIMESTAMP NULL,
    torrent_id INT UNSIGNED NOT NULL, user_id INT UNSIGNED NOT NULL, connectable BOOLEAN NOT NULL DEFAULT 0,
    active BOOLEAN NOT NULL DEFAULT 1, visible BOOLEAN NOT NULL DEFAULT 1,
    PRIMARY KEY (user_id, torrent_id, peer_id)) ENGINE=InnoDB""",
    """CREATE TABLE unregistered_info_hashes (user_id INT UNSIGNED NOT NULL, info_hash BINARY(20) NOT NULL,
    created_at TIMESTAMP NULL, updated_at TIMESTAMP NULL, PRIMARY KEY (user_id, info_hash)) ENGINE=InnoDB""",
    """CREATE TABLE freeleech_tokens (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, user_id INT UNSIGNED NOT NULL,
    torrent_id INT UNSIGNED NOT NULL) ENGINE=InnoDB""",
    """CREATE TABLE personal_freeleeches (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, user_id INT UNSIGNED NOT NULL,
    created_at TIMESTAMP NULL) ENGINE=InnoDB""",
    """CREATE TABLE featured_torrents (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, user_id INT UNSIGNED NOT NULL,
    torrent_id INT UNSIGNED NOT NULL) ENGINE=InnoDB""",
    """CREATE TABLE blacklist_clients (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255) NOT NULL,
    reason TEXT NULL, peer_id_prefix VARCHAR(255) NOT NULL) ENGINE=InnoDB""",
)
"""Of MySQL and MariaDB."""

OWN_POSTGRESQL = (
    """CREATE TABLE members (member BIGINT PRIMARY KEY, username TEXT NOT NULL, passkey TEXT NOT NULL UNIQUE,
    up BIGINT NOT NULL DEFAULT 0, down BIGINT NOT NULL DEFAULT 0)""",
    """CREATE TABLE releases (release BIGINT PRIMARY KEY, name TEXT NOT NULL, info_hash CHAR(40) NOT NULL UNIQUE,
    seeders INTEGER NOT NULL DEFAULT 0, leechers INTEGER NOT NULL DEFAULT 0, snatched INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE downloads (member BIGINT NOT NULL, release BIGINT NOT NULL, up BIGINT NOT NULL,
    down BIGINT NOT NULL, seconds BIGINT NOT NULL, seeding BOOLEAN NOT NULL, active BOOLEAN NOT NULL,
    finished TIMESTAMPTZ, changed BIGINT NOT NULL, note TEXT NOT NULL DEFAULT 'none', PRIMARY KEY (member, release))""",
    """CREATE TABLE clients (member BIGINT NOT NULL, release BIGINT NOT NULL, peer_id CHAR(40) NOT NULL,
    address INET NOT NULL, port INTEGER NOT NULL, raw_address BYTEA, active BOOLEAN NOT NULL,
    seen TIMESTAMP NOT NULL, UNIQUE (member, release, peer_id))""",
)
"""A site of its own on PostgreSQL, with other types than UNIT3D's."""
OWN_MAPPING = """
[[table]]
rows = "users"
name = "members"
key = { member = "user_id" }
add = { up = "uploaded", down = "downloaded" }

[[table]]
rows = "torrents"
name = "releases"
key = { release = "torrent_id" }
set = { seeders = "seeders", leechers = "leechers", snatched = "snatches" }

[[table]]
rows = "history"
name = "downloads"
key = { member = "user_id", release = "torrent_id" }
insert = true

[table.set]
up = "uploaded"
down = "downloaded"
seconds = "seed_time"
seeding = "seeding"
active = "active"
finished = "completed_at"
changed = "last_announce"

[[table]]
rows = "peers"
name = "clients"
key = { member = "user_id", release = "torrent_id", peer_id = "peer_id" }
insert = true
set = { address = "ip", raw_address = "ip", port = "port", active = "active", seen = "last_announce" }
"""

GAZELLE = (
    """CREATE TABLE users_main (ID INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, Username VARCHAR(20) NOT NULL,
    torrent_pass CHAR(32) NOT NULL, Uploaded BIGINT UNSIGNED NOT NULL DEFAULT 0,
    Downloaded BIGINT UNSIGNED NOT NULL DEFAULT 0, can_leech TINYINT NOT NULL DEFAULT 1,
    Enabled ENUM('0','1','2') NOT NULL DEFAULT '1', Visible ENUM('1','0') NOT NULL DEFAULT '1') ENGINE=InnoDB""",
    """CREATE TABLE torrents (ID INT AUTO_INCREMENT PRIMARY KEY, info_hash BLOB NOT NULL, Size BIGINT NOT NULL,
    Leechers INT NOT NULL DEFAULT 0, Seeders INT NOT NULL DEFAULT 0, last_action DATETIME NULL,
    FreeTorrent ENUM('0','1','2') NOT NULL DEFAULT '0', Snatched INT UNSIGNED NOT NULL DEFAULT 0,
    balance BIGINT NOT NULL DEFAULT 0) ENGINE=InnoDB""",
    """CREATE TABLE xbt_files_users (uid INT NOT NULL, active TINYINT NOT NULL DEFAULT 1,
    announced INT NOT NULL DEFAULT 0,
    downloaded BIGINT NOT NULL DEFAULT 0, remaining BIGINT NOT NULL DEFAULT 0, uploaded BIGINT NOT NULL DEFAULT 0,
    upspeed INT UNSIGNED NOT NULL DEFAULT 0, downspeed INT UNSIGNED NOT NULL DEFAULT 0,
    corrupt BIGINT NOT NULL DEFAULT 0,
    timespent INT UNSIGNED NOT NULL DEFAULT 0, useragent VARCHAR(51) NOT NULL DEFAULT '', peer_id BINARY(20) NOT NULL,
    fid INT NOT NULL, mtime INT NOT NULL DEFAULT 0, ip VARCHAR(15) NOT NULL DEFAULT '',
    PRIMARY KEY (peer_id, fid, uid)) ENGINE=InnoDB""",
    """CREATE TABLE xbt_snatched (uid INT NOT NULL DEFAULT 0, tstamp INT NOT NULL, fid INT NOT NULL,
    IP VARCHAR(15) NOT NULL, KEY fid (fid)) ENGINE=InnoDB""",
    """CREATE TABLE users_freeleeches (UserID INT NOT NULL, TorrentID INT NOT NULL, Expired TINYINT NOT NULL DEFAULT 0,
    Downloaded BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (UserID, TorrentID)) ENGINE=InnoDB""",
    """CREATE TABLE xbt_client_whitelist (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, peer_id VARCHAR(20) NULL,
    vstring VARCHAR(200) NULL) ENGINE=InnoDB""",
)
NEXUSPHP = (
    """CREATE TABLE users (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
    username VARCHAR(40) NOT NULL DEFAULT '' UNIQUE,
    status ENUM('pending','confirmed') NOT NULL DEFAULT 'confirmed', class TINYINT UNSIGNED NOT NULL DEFAULT 1,
    uploaded BIGINT UNSIGNED NOT NULL DEFAULT 0, downloaded BIGINT UNSIGNED NOT NULL DEFAULT 0,
    seedtime BIGINT UNSIGNED NOT NULL DEFAULT 0, leechtime BIGINT UNSIGNED NOT NULL DEFAULT 0,
    enabled ENUM('yes','no') NOT NULL DEFAULT 'yes', passkey VARCHAR(32) NOT NULL DEFAULT '',
    downloadpos ENUM('yes','no') NOT NULL DEFAULT 'yes', KEY (passkey)) ENGINE=InnoDB""",
    """CREATE TABLE torrents (id MEDIUMINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, info_hash BINARY(20) NOT NULL UNIQUE,
    name VARCHAR(255) NOT NULL DEFAULT '', size BIGINT UNSIGNED NOT NULL DEFAULT 0,
    times_completed MEDIUMINT UNSIGNED NOT NULL DEFAULT 0, leechers MEDIUMINT UNSIGNED NOT NULL DEFAULT 0,
    seeders MEDIUMINT UNSIGNED NOT NULL DEFAULT 0, last_action DATETIME NULL,
    visible ENUM('yes','no') NOT NULL DEFAULT 'yes', banned ENUM('yes','no') NOT NULL DEFAULT 'no',
    approval_status INT NOT NULL DEFAULT 0, sp_state TINYINT UNSIGNED NOT NULL DEFAULT 1,
    promotion_time_type TINYINT UNSIGNED NOT NULL DEFAULT 0, promotion_until DATETIME NULL) ENGINE=InnoDB""",
    """CREATE TABLE snatched (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
    torrentid MEDIUMINT UNSIGNED NOT NULL DEFAULT 0, userid MEDIUMINT UNSIGNED NOT NULL DEFAULT 0,
    ip VARCHAR(64) NOT NULL DEFAULT '', port SMALLINT UNSIGNED NOT NULL DEFAULT 0,
    uploaded BIGINT UNSIGNED NOT NULL DEFAULT 0, downloaded BIGINT UNSIGNED NOT NULL DEFAULT 0,
    to_go BIGINT UNSIGNED NOT NULL DEFAULT 0, seedtime INT UNSIGNED NOT NULL DEFAULT 0,
    leechtime INT UNSIGNED NOT NULL DEFAULT 0, last_action DATETIME NULL, startdat DATETIME NULL,
    completedat DATETIME NULL, finished ENUM('yes','no') NOT NULL DEFAULT 'no', KEY userid (userid),
    KEY torrentid_userid (torrentid, userid)) ENGINE=InnoDB""",
    """CREATE TABLE peers (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, torrent MEDIUMINT UNSIGNED NOT NULL DEFAULT 0,
    peer_id BINARY(20) NOT NULL, ip VARCHAR(64) NOT NULL DEFAULT '', port SMALLINT UNSIGNED NOT NULL DEFAULT 0,
    uploaded BIGINT UNSIGNED NOT NULL DEFAULT 0, downloaded BIGINT UNSIGNED NOT NULL DEFAULT 0,
    to_go BIGINT UNSIGNED NOT NULL DEFAULT 0, seeder ENUM('yes','no') NOT NULL DEFAULT 'no', started DATETIME NULL,
    last_action DATETIME NULL, prev_action DATETIME NULL, connectable ENUM('yes','no') NOT NULL DEFAULT 'yes',
    userid MEDIUMINT UNSIGNED NOT NULL DEFAULT 0, agent VARCHAR(60) NOT NULL DEFAULT '',
    finishedat INT UNSIGNED NOT NULL DEFAULT 0, downloadoffset BIGINT UNSIGNED NOT NULL DEFAULT 0,
    uploadoffset BIGINT UNSIGNED NOT NULL DEFAULT 0, passkey CHAR(32) NOT NULL DEFAULT '',
    ipv4 VARCHAR(64) NOT NULL DEFAULT '', ipv6 VARCHAR(64) NOT NULL DEFAULT '',
    UNIQUE KEY unique_torrent_peer_user (torrent, peer_id, userid)) ENGINE=InnoDB""",
)
