// An agent whose image has a command of its own: all that is asked of it is to serve HTTP on port 8000.
import { createServer } from 'node:http';

let calls = 0;

const server = createServer(async (request, response) => {
  const answer = (status, value) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  // The first call comes after this has answered 200.
  if (request.url === '/healthz') return answer(200, {});
  if (request.method !== 'POST' || request.url !== '/invoke') return answer(404, { error: 'no such page' });
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const event = JSON.parse(Buffer.concat(chunks).toString());
  // Anything but 2xx is an error of the call.
  if (!event.name) return answer(400, { error: 'the event has no name' });
  calls += 1;
  answer(200, { message: `Hello, ${event.name}!`, calls });
});

// Loopback will do when the service runs as root; else it has to be 0.0.0.0.
server.listen(8000, '0.0.0.0');
process.on('SIGTERM', () => server.close(() => process.exit(0)));
