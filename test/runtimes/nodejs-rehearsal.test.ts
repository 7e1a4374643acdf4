import { execFile } from 'node:child_process';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';

const REHEARSAL = resolve(import.meta.dirname, '../../runtimes/nodejs/lib/rehearsal.js');
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

describe('what a Node.js does before its orders come', () => {
  test.each(programs)('%s: its call is answered, and no socket of it is open afterwards', async (_name, node) => {
    const { stdout, stderr } = await promisify(execFile)(node, ['-e', CODE]);
    expect(JSON.parse(stdout)).toEqual({ isAnswered: true, sockets: 0 });
    expect(stderr).toBe('');
  });
});
