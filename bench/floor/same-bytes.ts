/**
 * Floor of the meta_service: a bare `node:http` server that reads the body and answers with bytes recorded
 * from Rookery.
 * The argument is a JSON file of path → body. Any other path gets the first body.
 */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const texts = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8')) as Record<string, string>;
const answers = new Map(Object.entries(texts).map(([path, text]) => [path, Buffer.from(text)]));
const first = answers.values().next().value ?? Buffer.alloc(0);

const server = createServer((request, response) => {
  const bytes = answers.get(request.url ?? '') ?? first;
  const answer = () => {
    response.writeHead(200, { 'content-type': 'application/json; charset=utf-8', 'content-length': bytes.length });
    response.end(bytes);
  };
  if (request.method === 'GET') {
    answer();
    return;
  }
  request.resume();
  request.once('end', answer);
});
server.listen(0, '127.0.0.1', () => {
  console.log(`ready http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
