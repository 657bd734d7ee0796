<?php

// Plays the shop of a site: users buy upload, one after the other, in SQL, while the tracker writes the same rows. PHP's
// own drivers of databases are rarely installed, so it drives the database's client.
// php shop.php PURCHASES USERS BYTES CLIENT [ARGUMENT...]

declare(strict_types=1);

[, $purchases, $users, $bytes] = $argv;
$client = proc_open(array_slice($argv, 4), [['pipe', 'r'], ['pipe', 'w'], STDERR], $pipes);
for ($number = 0; $number < $purchases; $number++) {
    $sql = 'UPDATE users SET uploaded = uploaded + %d, seedbonus = seedbonus - 1 WHERE id = %d; SELECT ROW_COUNT();' . "\n";
    fprintf($pipes[0], $sql, $bytes, $number % $users + 1);
    fflush($pipes[0]);
    if (trim((string) fgets($pipes[1])) !== '1') {
        exit(1);
    }
}
fclose($pipes[0]);
exit(proc_close($client));
