import { expect, test } from 'vitest';
import { describeDurableAgents } from '../suites/durable-agent.ts';
import { Bed } from './agents.ts';

const PYTHON = `
import os, time
def handle(event, context):
    op = event.get("op")
    state = context.state
    if op == "get":
        return dict(state)
    if op == "wake":
        return {"waking": context.is_waking, "reason": context.wake["reason"], "version": context.wake["state_version"]}
    state["n"] = state.get("n", 0) + 1
    state.setdefault("log", []).append(event.get("i"))
    if op == "raise":
        raise ValueError("asked for")
    if op == "nan":
        return float("nan")
    if op == "big":
        return "x" * (7 << 20)
    if op == "function":
        state["f"] = print
    if op == "huge":
        state["x"] = "x" * (2 << 20)
    if op == "hang":
        time.sleep(600)
    if op == "save":
        context.save()
        raise ValueError("asked for")
    if op == "exit":
        os._exit(3)
    return state["n"]
`;

const NODE = `
exports.handle = async (event, context) => {
  const { op } = event;
  const { state } = context;
  if (op === 'get') return { ...state };
  if (op === 'wake') return { waking: context.isWaking, reason: context.wake.reason, version: context.wake.state_version };
  state.n = (state.n ?? 0) + 1;
  state.log ??= [];
  state.log.push(event.i);
  if (op === 'raise') throw new Error('asked for');
  if (op === 'nan') return NaN;
  if (op === 'big') return 'x'.repeat(7 << 20);
  if (op === 'function') state.f = () => 1;
  if (op === 'huge') state.x = 'x'.repeat(2 << 20);
  if (op === 'hang') await new Promise(resolve => setTimeout(resolve, 600_000));
  if (op === 'save') {
    await context.save();
    throw new Error('asked for');
  }
  if (op === 'exit') process.exit(3);
  return state.n;
};
`;

describeDurableAgents('durable agents in Python', { files: { 'app.py': PYTHON }, spec: {} });
describeDurableAgents('durable agents in Node.js', { files: { 'app.js': NODE }, spec: { runtime: 'nodejs' } });

test('a create warns about members of durable without effect, and refuses a template and another type', async () => {
  await using bed = await Bed.start({ 'app.py': PYTHON });
  const create = (name: string, more: object) =>
    bed.ask('POST', '/api/agent', bed.createBody(name, 'app.handle', {}, more));
  const warned = ['durable.pause_after_seconds has no effect yet', 'durable.busy has no effect yet'];
  expect(await create('a', { durable: { busy: {}, pause_after_seconds: 5 } })).toMatchObject({
    status: 200,
    // A machine without networks of sandboxes adds a warning of its own.
    body: { warnings: expect.arrayContaining(warned) },
  });
  expect(await create('b', { durable: 'yes' })).toMatchObject({
    status: 400,
    body: { message: 'invalid request body: durable must be true, false or an object' },
  });
  expect(
    await bed.ask('POST', '/api/agent', { namespace: 'n', name: 'c', template: 'base', durable: true }),
  ).toMatchObject({
    status: 400,
    body: { message: 'invalid request body: durable: a sandbox without code has no state; leave out template' },
  });
}, 120_000);
