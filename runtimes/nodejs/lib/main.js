'use strict';

/** The program of the runtime: serves one instance, whose code INIT names. */

const fs = require('node:fs');
const net = require('node:net');
const { log } = require('./failure.js');
const { rehearse } = require('./rehearsal.js');
const { Server } = require('./server.js');

const EXIT_USAGE = 2;
const SIGTERM_GRACE_MS = 10_000;
const BACKLOG = 128;
const EVERYBODY = 0o666;
const NAMES = {
  socket: 'ROOKERY_RUNTIME_SOCKET',
  fd: 'ROOKERY_RUNTIME_FD',
  secret: 'ROOKERY_RUNTIME_SECRET',
  portFile: 'ROOKERY_RUNTIME_PORT_FILE',
};

/**
 * Reads the control plane's settings from the environment and removes them, so that the user's code does not
 * see them.
 */
function takeSettings() {
  const settings = {};
  for (const [key, name] of Object.entries(NAMES)) {
    settings[key] = process.env[name] ?? '';
    delete process.env[name];
  }
  return settings;
}

function fail(why) {
  log(`rookery: ${why}`);
  process.exit(EXIT_USAGE);
}

function listen(listener, { socket, fd, portFile }) {
  listener.on('error', error => fail(`cannot listen: ${error.message}`));
  if (fd !== '') {
    if (!/^\d+$/.test(fd)) fail(`${NAMES.fd} must be the number of a descriptor, not ${fd}`);
    listener.listen({ fd: Number(fd) });
  } else if (socket.startsWith('tcp:')) {
    listenOnTcp(listener, socket, portFile);
  } else if (socket !== '') {
    // The control plane often runs as another user. The directory's mode and the secret protect the socket.
    removeLeftOver(socket);
    const mask = process.umask(0);
    listener.listen({ path: socket, backlog: BACKLOG });
    process.umask(mask);
    fs.chmodSync(socket, EVERYBODY);
  } else {
    fail(`${NAMES.socket} or ${NAMES.fd} must say where to listen: a path, tcp:host:port, or a listening descriptor`);
  }
}

function listenOnTcp(listener, address, portFile) {
  const [, host, port] = /^tcp:(.+):(\d+)$/.exec(address) ?? [];
  if (host === undefined) fail(`${NAMES.socket} must have the form tcp:host:port, not ${address}`);
  listener.listen({ host, port: Number(port), backlog: BACKLOG }, () => {
    if (portFile === '') return;
    const bound = listener.address();
    // The rename makes the complete file appear at once.
    fs.writeFileSync(`${portFile}.new`, `${bound.address}:${bound.port}\n`);
    fs.renameSync(`${portFile}.new`, portFile);
  });
}

/** Removes a socket that an earlier process of this sandbox has left. Exits if the path is not a socket. */
function removeLeftOver(path) {
  const found = fs.lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isSocket()) fail(`${path} (${NAMES.socket}) exists and is not a socket`);
  fs.unlinkSync(path);
}

/**
 * Blocks in the kernel until the orders of an instance arrive, and applies its environment and working
 * directory.
 */
function takeOrders(fd) {
  const length = readExactly(fd, 4);
  const { env, workingDir } = JSON.parse(readExactly(fd, length.readUInt32BE(0)).toString());
  fs.closeSync(fd);
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, env);
  try {
    process.chdir(workingDir);
  } catch {
    process.chdir('/');
  }
}

/**
 * Reads exactly `bytes` bytes. Ends the process if the other side has closed, because the process is then not
 * needed.
 */
function readExactly(fd, bytes) {
  const data = Buffer.alloc(bytes);
  for (let at = 0; at < bytes; ) {
    const read = fs.readSync(fd, data, at, bytes - at, null);
    if (read === 0) process.exit(0);
    at += read;
  }
  return data;
}

function serve() {
  const settings = takeSettings();
  if (settings.secret === '') fail(`${NAMES.secret} is not set: it must hold the secret that connections open with`);
  const server = new Server(settings.secret);
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => server.stop(SIGTERM_GRACE_MS));
  listen(
    net.createServer({ noDelay: true }, socket => server.accept(socket)),
    settings,
  );
}

const [, waits] = /^--wait-for-orders=(\d+)$/.exec(process.argv[2] ?? '') ?? [];
if (waits === undefined) {
  serve();
} else {
  process.argv.splice(2, 1);
  rehearse().then(() => {
    takeOrders(Number(waits));
    serve();
  });
}
