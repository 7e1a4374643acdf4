import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { connect as connectTls, createSecureContext, type TLSSocket } from 'node:tls';
import { deadlineExceeded, messageOf, unavailable } from '../core/error.ts';
import { within } from './deadline.ts';
import { onAbort } from './linked-signal.ts';

/** Connecting, the handshake and the other side's proof. */
const PROOF_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 30_000;
/** The other side bears a silent one for twice as long. */
const PREPARED_MS = 5_000;
const NONCE_BYTES = 32;
const PROOF_BYTES = 32;
const SERVER = 'rookery pod server\0';
const CLIENT = 'rookery pod client\0';

export interface ProvenPeer {
  readonly host: string;
  readonly port: number;
  /** What both sides know and neither says, in hex. */
  readonly key: string;
}

/** What the other side may be able to do, newest first: it says in its part of the handshake which it can, and an older one says nothing. */
const PROTOCOLS = ['rookery-pod/2'] as const;
/** `''`: of the first version, which had no name. */
export type ProvenProtocol = (typeof PROTOCOLS)[number] | '';

/** One for all: making one reads the certificates of all authorities, and none of them has a say here. */
let context: ReturnType<typeof createSecureContext> | undefined;

/** One whose other side has proven itself: with `proof` this side does, and may speak. */
interface Shaken {
  readonly socket: TLSSocket;
  readonly proof: Buffer;
}

interface Prepared {
  readonly shaking: Promise<Shaken>;
  /** Lets go of what would end it. */
  readonly keep: () => void;
  readonly drop: () => void;
}

/** By whom they are to. */
const prepared = new Map<string, Prepared[]>();

/**
 * Begins connections that `connectProven` will want in a moment, up to where the first word is this side's. What nobody takes within 5 s, or
 * `forgetProven` is told of, is closed.
 */
export function prepareProven(peer: ProvenPeer, count: number): void {
  const more = Array.from({ length: count }, () => prepare(peer));
  prepared.set(nameOf(peer), [...(prepared.get(nameOf(peer)) ?? []), ...more]);
}

/** What was prepared and is not wanted is closed. */
export function forgetProven(peer: ProvenPeer): void {
  for (const one of prepared.get(nameOf(peer)) ?? []) one.drop();
}

function prepare(peer: ProvenPeer): Prepared {
  const over = new AbortController();
  const shaking = shake(peer, over.signal);
  const keep = () => {
    clearTimeout(timer);
    const name = nameOf(peer);
    const others = prepared.get(name)?.filter(other => other !== one) ?? [];
    if (others.length > 0) prepared.set(name, others);
    else prepared.delete(name);
  };
  const drop = () => {
    keep();
    over.abort();
    shaking.then(
      ({ socket }) => socket.destroy(),
      () => undefined,
    );
  };
  const one: Prepared = { shaking, keep, drop };
  const timer = setTimeout(drop, PREPARED_MS).unref();
  shaking.catch(() => undefined);
  return one;
}

/**
 * A TLS connection to somebody who has proven that they know the key, and to whom this side has: the first bytes are the caller's, `first` is
 * on its way already; a function makes them for what the other side can do, or refuses. Nothing is read from it before somebody does. The certificate is the other side's own make; the proofs
 * are bound to it, so that nobody can stand between (`runtimes/python/rookery_pod/proof.py`).
 *
 * Fails with `deadline_exceeded` when `signal` aborts before, and with `unavailable` when nobody answers, or nobody who knows the key.
 */
export async function connectProven(
  peer: ProvenPeer,
  signal: AbortSignal,
  first: Buffer | ((protocol: ProvenProtocol) => Buffer) = Buffer.alloc(0),
): Promise<TLSSocket> {
  const { socket, proof } = (await takePrepared(peer, signal)) ?? (await shake(peer, signal));
  try {
    const said = typeof first === 'function' ? first(protocolOf(socket)) : first;
    socket.write(Buffer.concat([proof, said]));
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function protocolOf({ alpnProtocol }: TLSSocket): ProvenProtocol {
  return PROTOCOLS.find(known => known === alpnProtocol) ?? '';
}

/** undefined: there is none that is of use. */
async function takePrepared(peer: ProvenPeer, signal: AbortSignal): Promise<Shaken | undefined> {
  const one = prepared.get(nameOf(peer))?.[0];
  if (one === undefined) return undefined;
  one.keep();
  const given = onAbort(signal, one.drop);
  try {
    const shaken = await one.shaking;
    return shaken.socket.destroyed ? undefined : shaken;
  } catch {
    // Another one tells why, if that fails too.
    return undefined;
  } finally {
    given();
  }
}

async function shake(peer: ProvenPeer, signal: AbortSignal): Promise<Shaken> {
  context ??= createSecureContext({ minVersion: 'TLSv1.3', ca: [] });
  const socket = connectTls({
    host: peer.host,
    port: peer.port,
    secureContext: context,
    minVersion: 'TLSv1.3',
    rejectUnauthorized: false,
    ALPNProtocols: [...PROTOCOLS],
  });
  socket.allowHalfOpen = true;
  socket.setNoDelay(true);
  // A node that has lost its power says nothing.
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
  const late = () => {
    socket.destroy();
    if (signal.aborted) return deadlineExceeded(`the connection to ${where(peer)} was given up by its caller`);
    return unavailable(`${where(peer)} did not answer within ${PROOF_TIMEOUT_MS / 1000} s`);
  };
  return await within(prove(socket, peer), PROOF_TIMEOUT_MS, late, signal);
}

function prove(socket: TLSSocket, peer: ProvenPeer): Promise<Shaken> {
  return new Promise((resolve, reject) => {
    const nonce = randomBytes(NONCE_BYTES);
    let received: Buffer = Buffer.alloc(0);
    const fail = (error: Error) => {
      socket.destroy();
      reject(error);
    };
    const left = () =>
      fail(unavailable(`${where(peer)} closed the connection before it had proven that it knows the key`));
    const take = (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < NONCE_BYTES + PROOF_BYTES) return;
      socket.off('data', take).off('end', left).off('close', left);
      socket.pause();
      const theirs = received.subarray(0, NONCE_BYTES);
      const proof = received.subarray(NONCE_BYTES, NONCE_BYTES + PROOF_BYTES);
      const rest = received.subarray(NONCE_BYTES + PROOF_BYTES);
      const certificate = socket.getPeerX509Certificate()?.raw ?? Buffer.alloc(0);
      const facts = Buffer.concat([nonce, theirs, createHash('sha256').update(certificate).digest()]);
      const prove = (role: string) =>
        createHmac('sha256', Buffer.from(peer.key, 'hex')).update(role).update(facts).digest();
      if (!timingSafeEqual(proof, prove(SERVER))) {
        fail(unavailable(`${where(peer)} does not know the key of the pod: something else listens there`));
        return;
      }
      if (rest.length > 0) socket.unshift(rest);
      resolve({ socket, proof: prove(CLIENT) });
    };
    // Stays: whoever gets the socket may not listen for errors yet, and sees that it is closed.
    socket.on('error', error => {
      fail(unavailable(`${where(peer)} cannot be reached: ${messageOf(error)}`, { cause: error }));
    });
    socket.once('secureConnect', () => socket.write(nonce));
    socket.on('data', take).once('end', left).once('close', left);
  });
}

function nameOf({ host, port, key }: ProvenPeer): string {
  return `${host} ${port} ${key}`;
}

function where({ host, port }: ProvenPeer): string {
  return `the manager at ${host}:${port}`;
}
