'use strict';

/**
 * Runs one complete session of an instance before the orders of a real one arrive.
 *
 * V8 compiles a function on its first call, and Node creates its module loaders with the first module. The
 * rehearsal moves that work to a time when no caller waits: of 16 ms between the orders and the first result
 * 5 ms remain.
 */

const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { FRAME, FrameReader, frame, messageFrame, VERSION } = require('./protocol.js');
const { Server } = require('./server.js');

const DEADLINE_MS = 2000;
/**
 * The INIT of the rehearsal: an ECMAScript module and a CommonJS module, since Node loads them differently.
 */
const INIT = {
  handler: 'handler.handle',
  preStop: 'hook.stop',
  codePath: path.join(__dirname, 'rehearsed-code'),
  concurrency: 1,
  maxResultBytes: 1000,
  initTimeoutMs: DEADLINE_MS,
};
const CALL_HEADER = Buffer.from(JSON.stringify({ traceId: '', requestId: '', remainingMs: DEADLINE_MS }));
const CALL_ID = 1;

/**
 * Resolves when everything that the rehearsal opened is closed, or at the deadline. Never rejects.
 *
 * The value is true if the call was answered. After a failed rehearsal the instance only starts more slowly.
 */
function rehearse() {
  return new Promise(resolve => {
    let secret;
    try {
      secret = newSecret();
    } catch {
      resolve(false);
      return;
    }
    const server = new Server(secret);
    /** All accepted connections. Other processes may connect too if sandboxes share the host's network. */
    const accepted = [];
    const listener = net.createServer({ noDelay: true }, socket => {
      accepted.push(socket);
      server.accept(socket);
    });
    let client = null;
    let isAnswered = false;
    const end = () => {
      client?.destroy();
      for (const socket of accepted) socket.destroy();
      // `close` calls back when all connections have closed. It also calls back for a listener that never
      // listened.
      listener.close(() => {
        clearTimeout(deadline);
        resolve(isAnswered);
      });
    };
    const deadline = setTimeout(() => {
      end();
      resolve(false);
    }, DEADLINE_MS);
    listener.on('error', end);
    // An abstract address needs no file, which the root of the sandbox may not allow.
    const address = `\0rookery-rehearsal-${Math.random()}`;
    listener.listen({ path: address }, () => {
      client = net.connect({ path: address });
      client.on('error', end);
      answerEach(client, {
        [FRAME.HELLO_OK]: () => messageFrame(FRAME.INIT, 0, INIT),
        [FRAME.INIT_OK]: () => frame(FRAME.CALL, CALL_ID, callPayload('{}')),
        [FRAME.RESULT]: () => {
          isAnswered = true;
          end();
        },
        [FRAME.ERROR]: end,
      });
      client.write(messageFrame(FRAME.HELLO, 0, { version: VERSION, secret, client: 'rehearsal', role: 'data' }));
    });
  });
}

/**
 * Returns a random secret, so that only this process can use the rehearsal: it may be root. Loading
 * `node:crypto` would take longer.
 */
function newSecret() {
  const bytes = Buffer.alloc(16);
  const random = fs.openSync('/dev/urandom', 'r');
  try {
    if (fs.readSync(random, bytes) !== bytes.length) throw new Error('/dev/urandom gave too little');
  } finally {
    fs.closeSync(random);
  }
  return bytes.toString('hex');
}

function callPayload(event) {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(CALL_HEADER.length);
  return Buffer.concat([length, CALL_HEADER, Buffer.from(event)]);
}

/**
 * Answers received frames. `answers` maps the type of a frame to a function that returns the next frame to
 * send.
 */
function answerEach(socket, answers) {
  const reader = new FrameReader();
  socket.on('data', chunk => {
    reader.push(chunk);
    for (let got = reader.next(); got !== null; got = reader.next()) {
      const answer = answers[got.type]?.();
      if (answer !== undefined) socket.write(answer);
    }
  });
}

module.exports = { rehearse };
