// An agent in an image with its own command. The only requirement: the command serves HTTP on port 8000.
import { createServer } from 'node:http';

let calls = 0;

const server = createServer(async (request, response) => {
  const answer = (status, value) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  // The service sends the first call after /healthz has answered 200.
  if (request.url === '/healthz') return answer(200, {});
  if (request.method !== 'POST' || request.url !== '/invoke') return answer(404, { error: 'no such page' });
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const event = JSON.parse(Buffer.concat(chunks).toString());
  // With any status except 2xx the call fails.
  if (!event.name) return answer(400, { error: 'the event has no name' });
  calls += 1;
  answer(200, { message: `Hello, ${event.name}!`, calls });
});

// Loopback is enough if the service runs as root. Otherwise the server must listen on 0.0.0.0.
server.listen(8000, '0.0.0.0');
process.on('SIGTERM', () => server.close(() => process.exit(0)));
