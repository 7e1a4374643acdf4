import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished } from 'vitest';
import { Channel } from '../../src/runtime/channel.ts';
import type { SandboxDriver, SandboxSpec } from '../../src/sandbox/driver.ts';
import { call, initOf } from '../suites/sandbox-driver.ts';

const WAIT_MS = 30_000;

/** Address of this machine that other machines reach; undefined when there is none. */
export const OUTSIDE = Object.values(networkInterfaces())
  .flat()
  .find(one => one?.family === 'IPv4' && !one.internal && !one.address.startsWith('10.'))?.address;

/**
 * Starts a sandbox that makes the requested attempts (`code/network_calls.py`). Its channel closes with the
 * test.
 */
export async function startAttempts(driver: SandboxDriver, spec: SandboxSpec, codePath: string) {
  const started = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
  const channel = await Channel.open(started.endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
  onTestFinished(() => channel.close());
  const init = initOf(spec, codePath, 'network_calls.attempt');
  expect(await channel.initialize(init, AbortSignal.timeout(WAIT_MS))).toMatchObject({ ok: true });
  const attempt = (name: string, args: object = {}) => call(channel, { do: name, with: args });
  return { spec, attempt, ...started };
}

/** Starts a server on this machine that accepts connections and sends nothing, until the test ends. */
export async function listenOn(host: string): Promise<{ readonly port: number; readonly listener: net.Server }> {
  const listener = net.createServer(socket => socket.on('error', () => socket.destroy()).end());
  onTestFinished(() => void listener.close());
  listener.listen(0, host);
  await once(listener, 'listening');
  return { port: (listener.address() as AddressInfo).port, listener };
}

/** Sends a message to a port of the host's loopback interface and returns the answer. */
export async function ask(port: number, message: string): Promise<string> {
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.setTimeout(WAIT_MS, () => socket.destroy(new Error('no answer')));
  socket.end(message);
  return await text(socket);
}
