/**
 * Floor of a call: the least cost of a server in front of Python processes.
 * A bare `node:http` server passes the body of `POST /<n>` over a unix socket to the nth bare Python loop. It
 * returns the result. Arguments: the interpreter and the number of loops.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { startLoops } from './loops.ts';

const loops = await startLoops();

const server = createServer((request, response) => {
  const loop = loops[Number(request.url?.slice(1))];
  if (loop === undefined) {
    response.writeHead(404).end();
    return;
  }
  const chunks: Buffer[] = [];
  request.on('data', chunk => chunks.push(chunk));
  request.on('end', () => {
    loop.call(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks), result => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': result.length });
      response.end(result);
    });
  });
});
server.listen(0, '127.0.0.1', () => {
  console.log(`ready http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
