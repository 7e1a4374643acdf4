/** Express application on a port of an agent. */
import { once } from 'node:events';
import express from 'express';

const visits = new Map();
const app = express();

app.get('/hello/:name', ({ params: { name } }, response) => {
  visits.set(name, (visits.get(name) ?? 0) + 1);
  response.json({ message: `Hello, ${name}!`, visits: visits.get(name) });
});

/** Starts the application. The create returns after the application accepts connections. */
export async function initialize() {
  await once(app.listen(8000, '127.0.0.1'), 'listening');
}

export async function handle() {
  return { names: visits.size };
}
