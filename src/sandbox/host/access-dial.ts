import { readlink } from 'node:fs/promises';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { unavailable } from '../../core/error.ts';
import type { OpenWay } from './access-connection.ts';
import { connectTcp } from './connect-tcp.ts';
import type { ProcessSandbox } from './handle.ts';
import { isAlive } from './kernel.ts';

const LOOPBACKS = ['127.0.0.1', '::1'];

/**
 * Connects to a port inside: directly when the sandbox shares this process's network, else through a process
 * inside.
 */
export async function dial(
  openWay: OpenWay,
  sandbox: ProcessSandbox,
  port: number,
  signal: AbortSignal,
): Promise<Duplex> {
  if (await sharesNetwork(sandbox)) return await dialHere(port, signal);
  const { socket } = await openWay('dial', { port }, signal);
  return socket;
}

/**
 * Checks whether the sandbox's loopback is this process's own.
 * Returns false when that cannot be read, because a connection through the inside works in both cases.
 */
async function sharesNetwork({ init }: ProcessSandbox): Promise<boolean> {
  if (init === null) return false;
  try {
    const [theirs, ours] = await Promise.all([readlink(`/proc/${init.pid}/ns/net`), readlink('/proc/self/ns/net')]);
    return theirs === ours && isAlive(init);
  } catch {
    return false;
  }
}

async function dialHere(port: number, signal: AbortSignal): Promise<Socket> {
  let refusal: Error | null = null;
  for (const host of LOOPBACKS) {
    try {
      return await connectTcp(host, port, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      refusal ??= error as Error;
    }
  }
  throw unavailable(`nothing listens on port ${port}`, { cause: refusal });
}
