import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, test, vi } from 'vitest';
import type { SandboxHandle, SandboxSpec } from '../../src/sandbox/driver.ts';
import type { ProcessDriver } from '../../src/sandbox/process/driver.ts';
import { available } from '../parts/available.ts';
import { describeWith } from '../probe.ts';
import { ask, listenOn, OUTSIDE, startAttempts } from './network-fixture.ts';
import { ProcessFixture } from './process-fixture.ts';

const WAIT_MS = 30_000;
/** Address range of this file alone, so that its residue is recognizable. */
const RANGE = '10.219.0.0/16';
const OWN = { use: 'own', range: RANGE, setForwarding: true } as const;
const TCP = { protocol: 'tcp', port: 8080 } as const;
const UDP = { protocol: 'udp', port: 8053 } as const;

vi.setConfig({ testTimeout: 60_000 });

describeWith(['root', 'namespaces', 'networks'], 'the networks of process sandboxes', () => {
  const fixture = new ProcessFixture({ network: OWN });
  let driver: ProcessDriver = fixture.driver();

  afterEach(async () => {
    for (const { handle } of await driver.list()) await driver.remove(handle);
  });

  afterAll(async () => {
    await fixture.dispose();
  });

  const start = async (changes: Partial<SandboxSpec> = {}, under = driver) => {
    const started = await startAttempts(under, fixture.spec(changes), fixture.codePath);
    const hostPort = (protocol: string) =>
      started.facts.portMappings.find(mapping => mapping.protocol === protocol)?.hostPort ?? 0;
    return { hostPort, ...started };
  };

  test.skipIf(OUTSIDE === undefined)('a sandbox reaches this machine by its outside address', async () => {
    const { attempt } = await start();
    expect(await attempt('connect', { host: OUTSIDE, port: (await listenOn(String(OUTSIDE))).port })).toBe('ok');
  });

  test('a sandbox’s address and `net` are reported, and it has no other interface', async () => {
    const { facts, attempt } = await start();
    expect(facts.sandboxIp).toMatch(/^10\.219\.\d+\.\d+$/);
    expect(facts.isolation).toContain('net');
    expect(facts.warnings).toEqual([]);
    expect(await attempt('interfaces')).toEqual(expect.arrayContaining(['eth0', 'lo']));
    expect(await attempt('raw_socket')).toBe('PermissionError');
  });

  test('a sandbox does not reach a listener on the host’s loopback', async () => {
    const { port } = await listenOn('127.0.0.1');
    const { attempt } = await start();
    expect(await attempt('connect', { host: '127.0.0.1', port })).toBe('ConnectionRefusedError');
    expect(await attempt('connect', { host: '10.219.0.1', port })).toBe('ConnectionRefusedError');
  });

  test('two sandboxes listen on the same port, and neither reaches the other', async () => {
    const [one, other] = await Promise.all([start(), start()]);
    for (const { attempt } of [one, other]) await attempt('listen_tcp', { host: '0.0.0.0', port: 8080 });
    expect(await one.attempt('connect', { host: '127.0.0.1', port: 8080 })).toBe('ok');
    expect(await one.attempt('connect', { host: other.facts.sandboxIp, port: 8080 })).toMatch(/timeout|TimeoutError/i);
  });

  test('only root on the host may open connections to a sandbox', async () => {
    const { attempt, facts } = await start();
    await attempt('listen_tcp', { host: '0.0.0.0', port: 8080 });
    const socket = net.connect(8080, facts.sandboxIp);
    await once(socket, 'connect');
    socket.destroy();
    const script = `import socket; socket.create_connection(("${facts.sandboxIp}", 8080), 1)`;
    expect(() => execFileSync('/usr/bin/python3', ['-c', script], { uid: 65_534, cwd: '/', stdio: 'pipe' })).toThrow(
      /PermissionError|timed out/,
    );
  });

  test('`network: none` has loopback only', async () => {
    const { attempt, facts } = await start({ network: 'none', ports: [TCP] });
    expect(facts.sandboxIp).toBe('');
    expect(facts.portMappings).toEqual([]);
    expect(facts.warnings.join()).toContain('the sandbox has no network');
    expect(await attempt('interfaces')).not.toContain('eth0');
    expect(await attempt('connect', { host: '10.219.0.1', port: 1 })).toBe('OSError');
  });

  test.each(['0.0.0.0', '127.0.0.1'])('a published TCP port reaches a listener on %s in the sandbox', async host => {
    const { attempt, hostPort, facts } = await start({ ports: [TCP] });
    expect(facts.portMappings).toEqual([
      { protocol: 'tcp', containerPort: 8080, hostIp: '127.0.0.1', hostPort: expect.any(Number) },
    ]);
    await attempt('listen_tcp', { host, port: 8080 });
    expect(await ask(hostPort('tcp'), 'x'.repeat(300_000))).toMatch(/^tcp \S+ x{300000}$/);
  });

  test('a published port without a listener inside refuses its callers', async () => {
    const { hostPort } = await start({ ports: [TCP] });
    await expect(ask(hostPort('tcp'), 'x')).rejects.toThrow('ECONNRESET');
  });

  test('a published UDP port answers each of its callers', async () => {
    const { attempt, hostPort } = await start({ ports: [TCP, UDP] });
    await attempt('listen_udp', { host: '0.0.0.0', port: 8053 });
    expect(hostPort('tcp')).not.toBe(hostPort('udp'));
    const answers = ['one', 'two', 'three'].map(word => askByDatagram(hostPort('udp'), word));
    expect(await Promise.all(answers)).toEqual(['udp one', 'udp two', 'udp three']);
  });

  test('a sandbox’s ports are closed when it exits and when it is removed', async () => {
    const [ends, goes] = await Promise.all([start({ ports: [TCP] }), start({ ports: [TCP] })]);
    await ends.attempt('end', { code: 3 }).catch(() => undefined);
    await driver.wait(ends.handle);
    await expect(ask(ends.hostPort('tcp'), 'x')).rejects.toThrow('ECONNREFUSED');
    await driver.remove(goes.handle);
    await expect(ask(goes.hostPort('tcp'), 'x')).rejects.toThrow('ECONNREFUSED');
  });

  test('a restart of a sandbox keeps its host ports', async () => {
    const one = await start({ ports: [TCP, UDP] });
    await driver.remove(one.handle);
    const again = await start({ instanceId: one.spec.instanceId, ports: [TCP, UDP] });
    expect(again.facts.portMappings).toEqual(one.facts.portMappings);
    await again.attempt('listen_tcp', { host: '0.0.0.0', port: 8080 });
    expect(await ask(again.hostPort('tcp'), 'hello')).toContain('hello');
  });

  test('a later server opens the same ports again, also after the zygote was killed', async () => {
    const { attempt, hostPort, handle } = await start({ ports: [TCP, UDP] });
    await attempt('listen_tcp', { host: '127.0.0.1', port: 8080 });
    await attempt('listen_udp', { host: '0.0.0.0', port: 8053 });
    const stored = JSON.parse(JSON.stringify(handle)) as SandboxHandle;
    await driver.close();
    await expect(ask(hostPort('tcp'), 'x')).rejects.toThrow('ECONNREFUSED');
    driver = fixture.driver();
    expect(await driver.inspect(stored)).toEqual({ state: 'running' });
    expect(await ask(hostPort('tcp'), 'again')).toContain('again');
    expect(await askByDatagram(hostPort('udp'), 'again')).toBe('udp again');
  });

  test('a sandbox with ports has its own network, and others use that of the host, when networks are shared', async () => {
    const shared = fixture.driver({ network: { ...OWN, use: 'shared' } });
    const [plain, published] = await Promise.all([start({}, shared), start({ ports: [TCP] }, shared)]);
    expect(plain.facts.sandboxIp).toBe('');
    expect(plain.facts.isolation).not.toContain('net');
    expect(published.facts.isolation).toContain('net');
    await published.attempt('listen_tcp', { host: '0.0.0.0', port: 8080 });
    expect(await ask(published.hostPort('tcp'), 'hello')).toContain('hello');
    await shared.close();
  });

  test('a range that the host uses for something else is reported, and nothing fails', async () => {
    const [taken] = Object.values(networkInterfaces()).flatMap(
      all => all?.filter(one => one.address === OUTSIDE) ?? [],
    );
    const range = `${taken?.address.split('.').slice(0, 3).join('.')}.0/24`;
    const other = new ProcessFixture({ network: { ...OWN, range } });
    try {
      const under = other.driver();
      const said = await available(under);
      expect(said.degraded.join()).toContain(`which the range ${range} overlaps`);
      const { facts, handle } = await under.start(other.spec({ ports: [TCP] }), AbortSignal.timeout(WAIT_MS));
      expect(facts.portMappings).toEqual([]);
      expect(facts.warnings.join()).toContain('ports are not published here');
      // The sandbox reaches services that rely on their address instead of a password. The driver warns about
      // it, and refuses when isolation is required.
      expect(facts.warnings.join()).toContain('this service’s own API included');
      expect(facts.isolation).not.toContain('net');
      const demanded = other.spec({ requireIsolation: true });
      await expect(under.start(demanded, AbortSignal.timeout(WAIT_MS))).rejects.toThrow(
        'this service’s own API included',
      );
      await under.remove((await under.start({ ...demanded, network: 'none' }, AbortSignal.timeout(WAIT_MS))).handle);
      await under.remove(handle);
    } finally {
      await other.dispose();
    }
  });

  test.each([
    ['a server that ends', (pids: readonly number[]) => pids],
    ['zygotes that are killed', (pids: readonly number[]) => pids.map(killIfThere)],
  ])('no interface and no rule remains after %s', async (_name, disturb) => {
    const left = () => ({
      interfaces: readdirSync('/sys/class/net').filter(name => name.startsWith('rk0adc')),
      rules: firewall().filter(line => line.includes('10.220.') || line.includes('10_220_')),
    });
    const other = new ProcessFixture({ network: { ...OWN, range: '10.220.0.0/16' } });
    try {
      const under = other.driver();
      const { handle } = await under.start(other.spec({ ports: [TCP] }), AbortSignal.timeout(WAIT_MS));
      expect(left().interfaces).not.toEqual([]);
      expect(left().rules).not.toEqual([]);
      disturb(zygotePids(other.dataDir));
      await under.remove(handle);
      // A killed zygote leaves the rules to the next one.
      await under.probe();
    } finally {
      await other.dispose();
    }
    // The kernel removes an interface shortly after the last process of its network.
    await expect.poll(left, { timeout: WAIT_MS }).toEqual({ interfaces: [], rules: [] });
  });
});

/** Kills a process that may have exited on its own. */
function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/**
 * Returns the zygotes of a data directory. Their titles begin with their name, which is that of their lock.
 */
function zygotePids(dataDir: string): number[] {
  const names = readdirSync(join(dataDir, 'run')).filter(name => name.endsWith('.lock'));
  return readdirSync('/proc').flatMap(pid => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      const title = readFileSync(`/proc/${pid}/cmdline`, 'latin1').split('\0')[0] ?? '';
      return names.some(name => title === `rookery: zygote ${name.slice(0, -5)}`) ? [Number(pid)] : [];
    } catch {
      return [];
    }
  });
}

function firewall(): string[] {
  return [['nft', 'list', 'ruleset'], ['iptables-save']].flatMap(([program = '', ...args]) => {
    try {
      return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split('\n');
    } catch {
      return [];
    }
  });
}

/** Sends a datagram until an answer arrives. The first one may precede the listener. */
async function askByDatagram(port: number, message: string): Promise<string> {
  const socket = createSocket('udp4');
  const again = setInterval(() => socket.send(message, port, '127.0.0.1'), 200);
  try {
    socket.send(message, port, '127.0.0.1');
    const [data] = (await once(socket, 'message', { signal: AbortSignal.timeout(WAIT_MS) })) as [Buffer];
    return data.toString();
  } finally {
    clearInterval(again);
    socket.close();
  }
}
