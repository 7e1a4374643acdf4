import { execFile } from 'node:child_process';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';

const REHEARSAL = resolve(import.meta.dirname, '../../runtimes/nodejs/lib/rehearsal.js');
const PROTOCOL = resolve(import.meta.dirname, '../../runtimes/nodejs/lib/protocol.js');
const CODE = `
  const { readdirSync, readlinkSync } = require('node:fs');
  const linkOf = number => {
    try {
      return readlinkSync('/proc/self/fd/' + number);
    } catch {
      return '';
    }
  };
  const sockets = () => readdirSync('/proc/self/fd').filter(number => linkOf(number).startsWith('socket:')).length;
  const { rehearse } = require(${JSON.stringify(REHEARSAL)});
  const before = sockets();
  rehearse().then(isAnswered => process.stdout.write(JSON.stringify({ isAnswered, sockets: sockets() - before })));
`;

const programs: [name: string, node: string][] = [
  ['this Node.js', process.execPath],
  ...['20', '22', '24'].flatMap((version): [string, string][] => {
    const home = process.env[`NODE_HOME_${version}`];
    return home === undefined ? [] : [[`Node.js ${version}`, join(home, 'bin', 'node')]];
  }),
];

/**
 * Script of a program that knows the address, as any program in the host's network may. The program connects
 * first and sends a load order for its own code.
 */
const STRANGER = `
  const net = require('node:net');
  const { FRAME, FrameReader, messageFrame, VERSION } = require(${JSON.stringify(PROTOCOL)});
  const { listen } = net.Server.prototype;
  const answers = [];
  let hasEnded;
  const ended = new Promise(resolve => { hasEnded = resolve; });
  net.Server.prototype.listen = function (options, listening) {
    return listen.call(this, options, () => {
      const secret = options.path.slice('\\0rookery-rehearsal-'.length);
      const stranger = net.connect(options);
      const reader = new FrameReader();
      stranger.on('data', chunk => {
        reader.push(chunk);
        for (let got = reader.next(); got !== null; got = reader.next()) answers.push(got.type);
        // Only now its own connection comes.
        if (answers.length === 1) listening();
      });
      stranger.on('close', hasEnded);
      stranger.write(messageFrame(FRAME.HELLO, 0, { version: VERSION, secret, client: 'stranger', role: 'data' }));
      stranger.write(messageFrame(FRAME.INIT, 0, { handler: 'own.handle', codePath: '/' }));
    });
  };
  const { rehearse } = require(${JSON.stringify(REHEARSAL)});
  rehearse().then(async isAnswered => {
    await ended;
    process.stdout.write(JSON.stringify({ isAnswered, refused: answers.every(type => type === FRAME.ERROR) }));
  });
`;

/** Script of a program that connects and sends nothing. The rehearsal closes the connection. */
const SILENT = STRANGER.replace(/stranger\.write\(.*\);/g, '').replace(
  "stranger.on('close'",
  "stranger.on('connect', listening);\n      stranger.on('close'",
);

describe('the rehearsal of Node.js before its orders', () => {
  test.each(programs)('%s: its call is answered, and no socket of it is open afterwards', async (_name, node) => {
    const { stdout, stderr } = await promisify(execFile)(node, ['-e', CODE]);
    expect(JSON.parse(stdout)).toEqual({ isAnswered: true, sockets: 0 });
    expect(stderr).toBe('');
  });

  test.each([
    ['asks it to load code', STRANGER],
    ['says nothing', SILENT],
  ])('a stranger who %s has no part in the rehearsal and is disconnected afterwards', async (_way, code) => {
    const { stdout } = await promisify(execFile)(process.execPath, ['-e', code], { timeout: 20_000 });
    expect(JSON.parse(stdout)).toEqual({ isAnswered: true, refused: true });
  });
});
