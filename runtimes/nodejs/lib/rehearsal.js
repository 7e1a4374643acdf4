'use strict';

/**
 * One life of an instance before the orders of a real one come. V8 compiles a function when it is first called, and Node makes what
 * loads modules with the first one: here that happens while nobody waits. Of 16 ms between the orders and the first result 5 are left.
 */

const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { FRAME, FrameReader, frame, messageFrame, VERSION } = require('./protocol.js');
const { Server } = require('./server.js');

const DEADLINE_MS = 2000;
/** An ECMAScript module and one of CommonJS: they are loaded in different ways. */
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
 * Resolves when nothing of it is open any more, after the deadline whatever is, with whether its call was answered. It never rejects: whatever
 * goes wrong, the instance only starts more slowly.
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
    /** Its own connection, and those of strangers: where sandboxes share the network of the host, the address is no secret. */
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
      // All connections have closed when it answers; one that never listened answers too.
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
    // Of the abstract namespace: no file, which the root of the sandbox may not allow.
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

/** Nobody but this process may rehearse: it may be root, and it will be an instance of somebody. `node:crypto` would be loaded for nothing else. */
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

/** `answers`: type of a frame → what gives the frame that follows it. */
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
