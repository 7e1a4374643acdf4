'use strict';

const { Calls } = require('./calls.js');
const { Connection } = require('./connection.js');
const { Failure } = require('./failure.js');
const { Lifecycle } = require('./lifecycle.js');
const { CODE, FRAME, ProtocolError, VERSION, errorFrame, messageFrame, readMessage } = require('./protocol.js');

const SDK = 'rookery-runtime-nodejs/0.1.0';
const HANDSHAKE_MS = 10_000;
const MAX_HANDSHAKES = 64;
const MAX_GRACE_MS = 1e12;
const CANCEL_REASONS = new Set(['timeout', 'caller', 'interrupt']);

/** Performs handshakes with control planes and passes their frames to the calls and the lifecycle. */
class Server {
  #secret;
  #calls = new Calls();
  #lifecycle = new Lifecycle(this.#calls);
  /** The connections of each client by role. */
  #clients = new Map();
  /** Connections that have not sent HELLO, with the timers that close them. */
  #strangers = new Map();

  constructor(secret) {
    this.#secret = Buffer.from(secret);
    this.#calls.lifecycle = this.#lifecycle;
  }

  accept(socket) {
    if (this.#strangers.size >= MAX_HANDSHAKES) {
      socket.destroy();
      return;
    }
    const connection = new Connection(socket, this);
    this.#strangers.set(
      connection,
      setTimeout(() => connection.close(), HANDSHAKE_MS),
    );
  }

  stop(graceMs) {
    this.#lifecycle.stop(null, graceMs);
  }

  /** Handles one frame. Throws ProtocolError if the connection has to be closed. */
  receive(connection, frame) {
    if (connection.role === null) this.#greet(connection, frame);
    else if (connection.role === 'data') this.#receiveData(connection, frame);
    else this.#receiveControl(connection, frame);
  }

  ended(connection) {
    this.#endHandshake(connection);
    const client = this.#clients.get(connection.client);
    if (client === undefined || client[connection.role] !== connection) return;
    client[connection.role] = undefined;
    if (client.data === undefined && client.control === undefined) this.#clients.delete(connection.client);
    if (connection.role === 'data') {
      this.#lifecycle.durable?.disconnected(connection);
      this.#calls.endConnection(connection);
      return;
    }
    this.#lifecycle.forget(connection);
    // The end of a paused data connection would remain unnoticed, so it is closed together with this one.
    if (client.data?.isPaused) client.data.close();
  }

  #greet(connection, frame) {
    this.#endHandshake(connection);
    try {
      const { client, role, takesSpans } = this.#readHello(frame);
      const known = this.#clients.get(client) ?? { data: undefined, control: undefined };
      if (known[role] !== undefined) throw new ProtocolError('this client has such a connection already');
      known[role] = connection;
      this.#clients.set(client, known);
      connection.client = client;
      connection.role = role;
      connection.takesSpans = takesSpans;
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      connection.refuse(errorFrame(0, new Failure(CODE.PROTOCOL, error.message)));
      return;
    }
    const { state, failure } = this.#lifecycle;
    const hello = { version: VERSION, runtime: `nodejs${process.versions.node}`, sdk: SDK, state, durable: 1 };
    if (this.#lifecycle.durable !== null) {
      hello.stateVersion = this.#lifecycle.durable.version;
      hello.keepAwakeSeconds = this.#lifecycle.durable.keptAwakeSeconds();
    }
    if (state === 'failed') hello.error = { code: failure.code, message: failure.message };
    if (connection.role === 'data') this.#lifecycle.durable?.connected(connection);
    connection.send(messageFrame(FRAME.HELLO_OK, 0, hello));
  }

  #readHello({ type, callId, payload }) {
    if (type !== FRAME.HELLO || callId !== 0) {
      throw new ProtocolError(`expected HELLO as the first frame, got a frame of type ${type}`);
    }
    const { secret, version, client, role, spans } = readMessage(payload, 'HELLO');
    if (typeof secret !== 'string' || !isSame(Buffer.from(secret), this.#secret))
      throw new ProtocolError('wrong secret');
    if (version !== VERSION) {
      throw new ProtocolError(`this runtime speaks protocol version ${VERSION}, not ${version}`);
    }
    if (typeof client !== 'string' || client === '' || (role !== 'data' && role !== 'control')) {
      throw new ProtocolError('HELLO needs a client, a text, and a role, data or control');
    }
    return { client, role, takesSpans: Boolean(spans) };
  }

  #receiveData(connection, { type, callId, payload }) {
    if (type === FRAME.CALL) this.#calls.receive(connection, callId, payload);
    else if (type === FRAME.INIT) this.#lifecycle.receiveInit(connection, readMessage(payload, 'INIT'));
    else throw new ProtocolError(`a frame of type ${type} has no place on a data connection`);
  }

  #receiveControl(connection, { type, callId, payload }) {
    const data = this.#clients.get(connection.client)?.data;
    if (type === FRAME.CANCEL) {
      const { reason } = readMessage(payload, 'CANCEL');
      if (!CANCEL_REASONS.has(reason)) {
        throw new ProtocolError('CANCEL needs a reason, timeout, caller or interrupt');
      }
      if (data !== undefined) this.#calls.cancel(data, callId, reason);
    } else if (type === FRAME.CREDIT) {
      if (payload.length !== 4) throw new ProtocolError(`CREDIT must have 4 bytes, not ${payload.length}`);
      if (data !== undefined) this.#calls.credit(data, callId, payload.readUInt32BE(0));
    } else if (type === FRAME.PING) {
      connection.send(messageFrame(FRAME.PONG, 0, this.#calls.counts()));
    } else if (type === FRAME.SAVED) {
      this.#lifecycle.durable?.saved();
    } else if (type === FRAME.ALARM_LIST) {
      this.#lifecycle.durable?.listed(readMessage(payload, 'ALARM_LIST'));
    } else if (type === FRAME.STOP) {
      const { graceMs } = readMessage(payload, 'STOP');
      if (!(graceMs >= 0 && graceMs < MAX_GRACE_MS)) {
        throw new ProtocolError('STOP needs graceMs, a number of milliseconds');
      }
      this.#lifecycle.stop(connection, graceMs);
    } else {
      throw new ProtocolError(`a frame of type ${type} has no place on a control connection`);
    }
  }

  #endHandshake(connection) {
    clearTimeout(this.#strangers.get(connection));
    this.#strangers.delete(connection);
  }
}

/**
 * Compares two buffers in a time that does not depend on where they differ. Loading Node's module for this
 * takes long.
 */
function isSame(left, right) {
  let difference = left.length ^ right.length;
  for (let index = 0; index < left.length; index++) difference |= left[index] ^ right[index % right.length];
  return difference === 0;
}

module.exports = { Server };
