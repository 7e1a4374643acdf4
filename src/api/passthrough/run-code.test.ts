import { text } from 'node:stream/consumers';
import { afterEach, expect, test } from 'vitest';
import { HostAccess } from '../../../test/http/host-access.ts';
import { AGENT, bed, Inside } from '../../../test/http/passthrough-bed.ts';
import { unavailable } from '../../core/error.ts';
import { INTERPRETER } from '../../templates/templates.ts';

const inside = new Inside();

afterEach(() => inside.close());

/** A host whose port of the interpreter leads to another port, once some dials were refused. */
class WithInterpreter extends HostAccess {
  refused = 0;
  readonly #port: number;

  constructor(port: number) {
    super('/');
    this.#port = port;
  }

  override async dial(port: number, signal: AbortSignal) {
    expect(port).toBe(INTERPRETER.port);
    if (this.refused++ < 2) throw unavailable(`nothing listens on port ${port}`);
    return await super.dial(this.#port, signal);
  }
}

const AGENT_WITH_INTERPRETER = { ...AGENT, spec: { ...AGENT.spec, template: INTERPRETER.template } };
const PATH = `/api/agent/${AGENT.id}/code`;

test('a cell reaches the interpreter, which may still be starting, and its lines come back', async () => {
  await using it = await bed();
  const port = await inside.http(async (request, response) => {
    const seen = { method: request.method, url: request.url, body: JSON.parse(await text(request)) };
    response.setHeader('Content-Type', 'application/x-ndjson').end(`${JSON.stringify(seen)}\n`);
  });
  it.instances.put(AGENT_WITH_INTERPRETER);
  it.instances.inside = new WithInterpreter(port);
  const answer = await fetch(it.url + PATH, { method: 'POST', body: '{"code":"1"}' });
  expect(answer.status).toBe(200);
  expect(await answer.json()).toEqual({ method: 'POST', url: '/execute', body: { code: '1' } });
});

test('an agent without a code interpreter is refused with the name of the template', async () => {
  await using it = await bed();
  const answer = await fetch(it.url + PATH, { method: 'POST', body: '{"code":"1"}' });
  expect(answer.status).toBe(409);
  expect(await answer.json()).toMatchObject({
    message: `agent ${AGENT.id} has no code interpreter: create it with template code-interpreter-v1, or from an image with python3`,
  });
});
