/**
 * Floor without `node:http`: the server of server.ts on raw sockets.
 * It parses only the path and the length of the body, and does not check the request. Arguments: the
 * interpreter and the number of loops.
 */
import { type AddressInfo, createServer } from 'node:net';
import { startLoops } from './loops.ts';

const loops = await startLoops();
const HEAD_END = Buffer.from('\r\n\r\n');
const HEAD = /^POST \/(\d+) [\s\S]*?\r\ncontent-length: (\d+)/i;
const NO_BYTES = Buffer.alloc(0);

const server = createServer({ noDelay: true }, socket => {
  let rest: Buffer = NO_BYTES;
  socket.on('data', chunk => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (;;) {
      const headEnd = rest.indexOf(HEAD_END);
      if (headEnd < 0) return;
      const [, index, length] = HEAD.exec(rest.toString('latin1', 0, headEnd)) ?? [];
      const loop = loops[Number(index)];
      if (loop === undefined) {
        socket.destroy();
        return;
      }
      const bodyEnd = headEnd + HEAD_END.length + Number(length);
      if (rest.length < bodyEnd) return;
      loop.call(rest.subarray(headEnd + HEAD_END.length, bodyEnd), result => {
        socket.write(
          `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${result.length}\r\n\r\n${result.toString()}`,
        );
      });
      rest = rest.subarray(bodyEnd);
    }
  });
  socket.on('error', () => socket.destroy());
});
server.listen(0, '127.0.0.1', () => {
  console.log(`ready http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
