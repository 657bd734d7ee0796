// A WebTorrent client in Node: node webtorrent_peer.mjs URLS TORRENT FOLDER. It seeds what the folder has, downloads the
// rest, and prints `ready` once it has announced, and `done` once it has the whole file. URLS are separated by commas.
import WebTorrent from 'webtorrent'

const [urls, torrent, folder] = process.argv.slice(2)
const client = new WebTorrent({
  dht: false, lsd: false, natUpnp: false, natPmp: false, utp: false, tracker: { rtcConfig: { iceServers: [] } }
})
client.on('error', error => { throw error })
client.add(torrent, { path: folder, announce: urls.split(',') }, added => {
  const say = () => console.log('done')
  if (added.done) say()
  else added.once('done', say)
  added.discovery.tracker.once('update', () => console.log('ready'))
})
process.stdin.resume()
process.stdin.on('end', () => client.destroy(() => process.exit()))
