/**
 * The floor: the least that this shape can cost. A bare `node:http` server that passes the body of `POST /<n>` over one unix
 * socket to the nth bare Python loop, and its answer back. Arguments: the interpreter and how many loops.
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
