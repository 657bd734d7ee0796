<?php

// Calls a tracker as the service class of a UNIT3D site does: PUT and DELETE at most three times with a pause in
// between, GET once. Reads calls as JSON lines, [name, argument...], and answers each with a JSON line.
// php unit3d_service.php URL KEY SECONDS [UNIX_SOCKET]

declare(strict_types=1);

final class Service
{
    public function __construct(
        private string $url,
        private string $key,
        private float $seconds,
        private ?string $socket = null,
    ) {
    }

    public function addTorrent(array $torrent): bool
    {
        return $this->change('PUT', 'torrents', [
            'id' => $torrent['id'],
            'status' => $torrent['status'] ?? 1,
            'info_hash' => bin2hex(base64_decode($torrent['info_hash'])),
            'is_deleted' => false,
            'seeders' => 0,
            'leechers' => 0,
            'times_completed' => 0,
            'download_factor' => max(0, 100 - ($torrent['free'] ?? 0)),
            'upload_factor' => ($torrent['doubleup'] ?? false) ? 200 : 100,
        ]);
    }

    public function removeTorrent(array $torrent): bool
    {
        return $this->change('DELETE', 'torrents', [
            'id' => $torrent['id'],
            'info_hash' => bin2hex(base64_decode($torrent['info_hash'])),
        ]);
    }

    public function getTorrent(int $id): mixed
    {
        return $this->read("torrents/$id");
    }

    public function addUser(array $user): bool
    {
        return $this->change('PUT', 'users', [
            'id' => $user['id'],
            'group_id' => $user['group_id'] ?? 3,
            'passkey' => $user['passkey'],
            'new_passkey' => $user['new_passkey'] ?? null,
            'can_download' => $user['can_download'] ?? true,
            'is_donor' => $user['is_donor'] ?? false,
            'is_lifetime' => $user['is_lifetime'] ?? false,
            'num_seeding' => 0,
            'num_leeching' => 0,
        ]);
    }

    public function removeUser(array $user): bool
    {
        return $this->change('DELETE', 'users', ['id' => $user['id'], 'passkey' => $user['passkey']]);
    }

    public function getUser(int $id): mixed
    {
        return $this->read("users/$id");
    }

    public function addGroup(array $group): bool
    {
        return $this->change('PUT', 'groups', [
            'id' => $group['id'],
            'slug' => $group['slug'],
            'download_slots' => $group['download_slots'] ?? null,
            'is_immune' => $group['is_immune'] ?? false,
            'is_freeleech' => $group['is_freeleech'] ?? false,
            'is_double_upload' => $group['is_double_upload'] ?? false,
        ]);
    }

    public function removeGroup(int $id): bool
    {
        return $this->change('DELETE', 'groups', ['id' => $id]);
    }

    public function addBlacklistedAgent(string $prefix): bool
    {
        return $this->change('PUT', 'blacklisted-agents', ['peer_id_prefix' => $prefix]);
    }

    public function removeBlacklistedAgent(string $prefix): bool
    {
        return $this->change('DELETE', 'blacklisted-agents', ['peer_id_prefix' => $prefix]);
    }

    public function addFreeleechToken(int $userId, int $torrentId): bool
    {
        return $this->change('PUT', 'freeleech-tokens', ['user_id' => $userId, 'torrent_id' => $torrentId]);
    }

    public function addPersonalFreeleech(int $userId): bool
    {
        return $this->change('PUT', 'personal-freeleech', ['user_id' => $userId]);
    }

    public function removePersonalFreeleech(int $userId): bool
    {
        return $this->change('DELETE', 'personal-freeleech', ['user_id' => $userId]);
    }

    public function addFeaturedTorrent(int $torrentId): bool
    {
        return $this->change('PUT', 'featured-torrents', ['torrent_id' => $torrentId]);
    }

    public function removeFeaturedTorrent(int $torrentId): bool
    {
        return $this->change('DELETE', 'featured-torrents', ['torrent_id' => $torrentId]);
    }

    public function getStats(): mixed
    {
        return $this->read('stats');
    }

    private function read(string $path): mixed
    {
        [$status, $body] = $this->send('GET', $path, null);

        return $status === 200 ? json_decode($body, true, 512, JSON_THROW_ON_ERROR) : $status;
    }

    private function change(string $method, string $path, array $data): bool
    {
        for ($triesLeft = 3; $triesLeft > 0; $triesLeft--) {
            if ($this->send($method, $path, $data)[0] === 200) {
                return true;
            }
            if ($triesLeft > 1) {
                usleep((int) ($this->seconds * 1_000_000));
            }
        }

        return false;
    }

    /** @return array{int, string} */
    private function send(string $method, string $path, ?array $data): array
    {
        $request = curl_init("{$this->url}/announce/{$this->key}/$path");
        curl_setopt_array($request, [
            CURLOPT_CUSTOMREQUEST => $method,
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_TIMEOUT => 30,
            CURLOPT_HTTPHEADER => ['Accept: application/json', 'User-Agent: GuzzleHttp/7'],
        ]);
        if ($this->socket !== null) {
            curl_setopt($request, CURLOPT_UNIX_SOCKET_PATH, $this->socket);
        }
        if ($data !== null) {
            curl_setopt($request, CURLOPT_POSTFIELDS, json_encode($data, JSON_THROW_ON_ERROR));
            curl_setopt($request, CURLOPT_HTTPHEADER, ['Content-Type: application/json', 'User-Agent: GuzzleHttp/7']);
        }
        $body = curl_exec($request);

        return [curl_getinfo($request, CURLINFO_RESPONSE_CODE), $body === false ? '' : $body];
    }
}

$service = new Service($argv[1], $argv[2], (float) $argv[3], $argv[4] ?? null);
while (($line = fgets(STDIN)) !== false) {
    [$name, $arguments] = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
    echo json_encode($service->$name(...$arguments), JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION), "\n";
    flush();
}
