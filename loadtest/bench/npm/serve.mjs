// The tracker as its own command starts it, over HTTP alone, or with a second argument also over UDP. Its command also
// loads the client, which needs a native module that has to be downloaded as a binary; the server does not.
import Server from 'bittorrent-tracker/server'

const server = new Server({ http: true, udp: process.argv[3] === 'udp', ws: false, stats: false })
server.on('error', error => { console.error(error.message) })
server.listen(Number(process.argv[2]), { http: '127.0.0.1', udp: '127.0.0.1' })
