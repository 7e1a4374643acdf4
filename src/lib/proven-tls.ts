import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { connect as connectTls, createSecureContext, type TLSSocket } from 'node:tls';
import { deadlineExceeded, messageOf, unavailable } from '../core/error.ts';
import { within } from './deadline.ts';
import { onAbort } from './linked-signal.ts';

/** Time for the connection, the handshake and the other side's proof. */
const PROOF_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 30_000;
/** The other side keeps a silent connection for twice as long (`PROOF_SECONDS` in `rookery_pod/gate.py`). */
const PREPARED_MS = 5_000;
const NONCE_BYTES = 32;
const PROOF_BYTES = 32;
const SERVER = 'rookery pod server\0';
const CLIENT = 'rookery pod client\0';

export interface ProvenPeer {
  readonly host: string;
  readonly port: number;
  /** The shared key in hex, which neither side sends. */
  readonly key: string;
}

/**
 * Protocols that the other side may support, newest first. It selects one in the handshake; an older one
 * selects none.
 */
const PROTOCOLS = ['rookery-pod/2'] as const;
/** `''`: the first version, which had no name. */
export type ProvenProtocol = (typeof PROTOCOLS)[number] | '';

/**
 * Shared by all connections: creating a context reads all authority certificates, and none of them is used
 * here.
 */
let context: ReturnType<typeof createSecureContext> | undefined;

/**
 * A connection on which the other side has proven itself. Sending `proof` proves this side, which may then
 * send data.
 */
interface Shaken {
  readonly socket: TLSSocket;
  readonly proof: Buffer;
}

interface PreparedConnection {
  readonly shaking: Promise<Shaken>;
  /** Removes it from `prepared` and cancels the timer that would close it. */
  readonly keep: () => void;
  readonly drop: () => void;
}

/** Prepared connections by the name of their peer. */
const prepared = new Map<string, PreparedConnection[]>();

/**
 * Starts connections for the next `connectProven` calls, up to the point where this side must send. Closes
 * those that are not taken within 5 s, or when `forgetProven` is called.
 */
export function prepareProven(peer: ProvenPeer, count: number): void {
  const more = Array.from({ length: count }, () => prepare(peer));
  prepared.set(nameOf(peer), [...(prepared.get(nameOf(peer)) ?? []), ...more]);
}

/** Closes prepared connections that are no longer needed. */
export function forgetProven(peer: ProvenPeer): void {
  for (const one of prepared.get(nameOf(peer)) ?? []) one.drop();
}

function prepare(peer: ProvenPeer): PreparedConnection {
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
  const one: PreparedConnection = { shaking, keep, drop };
  const timer = setTimeout(drop, PREPARED_MS).unref();
  shaking.catch(() => undefined);
  return one;
}

/**
 * Opens a TLS connection on which both sides have proven that they know the key. The caller owns all bytes
 * after the proof. `first` is sent with the proof; a function creates it for the other side's protocol, or
 * throws to refuse. Nothing is read from the connection until the caller does. The other side made its own
 * certificate; the proofs are bound to it, so that no third party can intercept
 * (`runtimes/python/rookery_pod/proof.py`).
 *
 * Fails with `deadline_exceeded` when `signal` aborts first, and with `unavailable` when no peer answers or
 * the peer does not know the key.
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

/** Takes a prepared connection; undefined when none is usable. */
async function takePrepared(peer: ProvenPeer, signal: AbortSignal): Promise<Shaken | undefined> {
  const one = prepared.get(nameOf(peer))?.[0];
  if (one === undefined) return undefined;
  one.keep();
  const given = onAbort(signal, one.drop);
  try {
    const shaken = await one.shaking;
    return shaken.socket.destroyed ? undefined : shaken;
  } catch {
    // A new connection reports the reason if it fails too.
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
  // A node that lost its power sends nothing, so probe the connection.
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
  const late = () => {
    socket.destroy();
    if (signal.aborted) return deadlineExceeded(`the caller cancelled the connection to ${where(peer)}`);
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
    const left = () => fail(unavailable(`${where(peer)} closed the connection before it proved that it has the key`));
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
    // Stays registered: the caller may not listen for errors yet, and sees the closed socket.
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
