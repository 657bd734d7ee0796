// A WebTorrent client in Node: node webtorrent_peer.mjs URLS TORRENT FOLDER. It seeds what the folder has, downloads the
// rest, and prints `ready` once it has announced with offers. URLS are separated by commas.
import WebTorrent from 'webtorrent'

const [urls, torrent, folder] = process.argv.slice(2)
const client = new WebTorrent({
  dht: false, lsd: false, natUpnp: false, natPmp: false, utp: false, tracker: { rtcConfig: { iceServers: [] } }
})
client.on('error', error => { throw error })
client.add(torrent, { path: folder, announce: urls.split(',') }, added => {
  let replies = added.done ? 2 : 1 // a seeder announces `completed` first, without offers
  added.discovery.tracker.on('update', () => { if (!--replies) console.log('ready') })
})
process.stdin.resume()
process.stdin.on('end', () => client.destroy(() => process.exit()))
