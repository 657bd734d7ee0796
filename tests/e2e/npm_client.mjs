// The client of npm's bittorrent-tracker: node npm_client.mjs URL INFO_HASH PEER_ID PORT, with ids in hex. It announces
// `started`, `completed` and `stopped`, scrapes, and prints each answer and the peers as a line of JSON.
import { register } from 'node:module'

// The package of WebRTC needs a native module, which has to be downloaded as a binary.
const stub = 'data:text/javascript,export default class {}'
const hook = `export const resolve = (name, context, next) =>
  name.startsWith('@thaunknown/simple-peer') ? { url: '${stub}', shortCircuit: true } : next(name, context)`
register('data:text/javascript,' + encodeURIComponent(hook))
const { default: Client } = await import('bittorrent-tracker/client')

const [announce, infoHash, peerId, port] = process.argv.slice(2)
const client = new Client({ announce: [announce], infoHash, peerId, port: Number(port) })
const say = (kind, value) => console.log(JSON.stringify([kind, value]))
const answer = () => new Promise((resolve, reject) => {
  client.once('update', ({ complete, incomplete }) => resolve([complete, incomplete]))
  client.once('warning', reject)
})
client.on('peer', address => say('peer', address))
for (const [kind, send] of [
  ['started', () => client.start()],
  ['completed', () => client.complete({ left: 0 })],
  ['stopped', () => client.stop()]
]) {
  const answered = answer()
  send()
  say(kind, await answered)
}
// Several hashes have to be bytes: it would join hex digits as text.
Client.scrape({ announce, infoHash: [Buffer.from(infoHash, 'hex'), Buffer.alloc(20)] }, (error, found) => {
  say('scrape', error ? String(error) : found[infoHash])
  client.destroy()
})
