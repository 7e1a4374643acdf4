import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, afterEach, expect, test, vi } from 'vitest';
import type { SandboxDriver, SandboxSpec } from '../../src/sandbox/driver.ts';
import type { ProcessDriver } from '../../src/sandbox/process/driver.ts';
import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith, whyMissing } from '../probe.ts';
import { ask, listenOn, OUTSIDE, startAttempts } from './network-fixture.ts';
import { ProcessFixture } from './process-fixture.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';
import { zygotePids } from './zygote-processes.ts';

const WAIT_MS = 30_000;
/** Beginning of the addresses of this file alone, by which its programs are recognized. */
const BEGINNING = '10.223.0.';
const OWN = { use: 'own', range: '10.223.0.0/16', setForwarding: false } as const;
const TCP = { protocol: 'tcp', port: 8080 } as const;
const UDP = { protocol: 'udp', port: 8053 } as const;
const SILENT_SECONDS = 2;
const ANSWER_SECONDS = 20;
/** Name that the host's name server knows, if `ordinary-user.test.ts` started that server. */
const NAME = process.env.ROOKERY_TEST_NAME;

vi.setConfig({ testTimeout: 60_000 });

/**
 * Tests for an ordinary user. When root runs the tests, `ordinary-user.test.ts` runs this file once with each
 * program.
 */
describeWith(['ordinary-user', 'usernet'], 'the networks of sandboxes of an ordinary user', () => {
  const fixture = new ProcessFixture({ network: OWN, spares: 1 });
  let driver: ProcessDriver = fixture.driver();

  afterEach(async () => {
    for (const { handle } of await driver.list()) await driver.remove(handle);
  });

  afterAll(async () => {
    await fixture.dispose();
    await vi.waitFor(() => expect(programs()).toEqual([]), { timeout: WAIT_MS });
  });

  const start = async (changes: Partial<SandboxSpec> = {}, under: SandboxDriver = driver, of = fixture.spec()) => {
    const started = await startAttempts(under, { ...of, ...changes }, fixture.codePath);
    const reach = (places: readonly (readonly [string, string, number])[], seconds: number) =>
      started.attempt('reach', { places, seconds });
    return { reach, ...started };
  };

  test('the network of a sandbox of an ordinary user is reported, and needs no address on the host', async () => {
    const { facts, attempt } = await start();
    expect(facts.isolation).toContain('net');
    expect(facts.sandboxIp).toBe('');
    expect(facts.warnings.join()).not.toContain('network of the host');
    expect(await attempt('interfaces')).toEqual(expect.arrayContaining(['eth0', 'lo']));
    expect(await attempt('resolver')).toContain(`nameserver ${BEGINNING}3\n`);
    await driver.start(fixture.spec({ requireIsolation: true }), AbortSignal.timeout(WAIT_MS)).catch(error => {
      // The machine may lack control groups for ordinary users, but the refusal must not name the network.
      expect(error.message).not.toContain('network');
    });
  });

  test('a sandbox does not reach a listener on the host’s loopback under any address', async () => {
    const { port, listener } = await listenOn('127.0.0.1');
    const { reach } = await start();
    const hosts = ['127.0.0.1', '127.0.0.2', '0.0.0.0', `${BEGINNING}100`, '10.223.9.9'];
    const found = await reach(
      hosts.map(host => ['tcp', host, port]),
      SILENT_SECONDS,
    );
    expect(found).not.toContain('ok');
    // The forwarding program answers for itself, never for the host: no connection has arrived here.
    let callers = 0;
    listener.on('connection', () => {
      callers += 1;
    });
    await reach(
      [
        ['tcp', `${BEGINNING}2`, port],
        ['tcp', `${BEGINNING}3`, port],
      ],
      SILENT_SECONDS,
    );
    expect(callers).toBe(0);
  });

  test.skipIf(OUTSIDE === undefined)(
    'a sandbox reaches the network, including this machine’s outside address',
    async () => {
      const { port } = await listenOn(String(OUTSIDE));
      const { reach } = await start();
      expect(await reach([['tcp', String(OUTSIDE), port]], ANSWER_SECONDS)).toEqual(['ok']);
    },
  );

  test.skipIf(NAME === undefined)(
    'a sandbox resolves names with the host’s name server, also one on loopback',
    async () => {
      const { attempt } = await start();
      expect(await attempt('resolve', { name: NAME })).toBe('192.0.2.77');
      expect(await attempt('resolve', { name: `another.${NAME}` })).toBe('192.0.2.77');
    },
  );

  test('two sandboxes listen on the same ports and reach neither each other nor the host', async () => {
    const [one, other] = await Promise.all([start(), start()]);
    const { port, listener } = await listenOn('127.0.0.1');
    listener.close();
    for (const { attempt } of [one, other]) await attempt('listen_everywhere', { tcp: port, udp: port });
    expect(await one.reach([['tcp', '127.0.0.1', port]], ANSWER_SECONDS)).toEqual(['ok']);
    await expect(ask(port, 'x')).rejects.toThrow('ECONNREFUSED');
  });

  test('a sandbox does not reach link-local addresses, the metadata of clouds and other sandboxes', async () => {
    const { reach } = await start();
    const hosts = ['169.254.169.254', '169.254.7.7', '100.100.100.200', '168.63.129.16', '192.0.0.192', '10.223.77.7'];
    const found = (await reach(
      hosts.flatMap(host => [['tcp', host, 80] as const, ['udp', host, 80] as const]),
      ANSWER_SECONDS,
    )) as string[];
    expect(new Set(found)).toEqual(new Set(['PermissionError']));
    const v6 = await reach(
      [
        ['tcp', 'fe80::1%eth0', 80],
        ['tcp', 'fd00:ec2::254', 80],
      ],
      SILENT_SECONDS,
    );
    expect(v6).not.toContain('ok');
  });

  test('TCP ports are published through the sandbox, and a UDP port is refused with the reason', async () => {
    const { attempt, facts } = await start({ ports: [TCP, UDP] });
    expect(facts.portMappings).toMatchObject([{ protocol: 'tcp', containerPort: 8080, hostIp: '127.0.0.1' }]);
    expect(facts.warnings.join()).toContain('UDP ports are not published here');
    await attempt('listen_tcp', { host: '0.0.0.0', port: 8080 });
    expect(await ask(facts.portMappings[0]?.hostPort ?? 0, 'hello')).toContain('hello');
  });

  test('a sandbox with `network: none` has loopback only and no network program', async () => {
    const { attempt } = await start({ network: 'none' });
    expect(await attempt('interfaces')).not.toContain('eth0');
    await driver.close();
    driver = fixture.driver({ spares: 0 });
    await expect.poll(programs, { timeout: WAIT_MS }).toEqual([]);
  });

  test('a sandbox’s network program ends when the sandbox is removed or its init is killed', async () => {
    await driver.close();
    driver = fixture.driver({ spares: 0 });
    const [goes, dies] = await Promise.all([start(), start()]);
    // The programs of earlier tests end shortly after the removal of their sandboxes.
    await expect.poll(programs, { timeout: WAIT_MS }).toHaveLength(2);
    await driver.remove(goes.handle);
    await expect.poll(programs, { timeout: WAIT_MS }).toHaveLength(1);
    process.kill(Number(dies.handle.data.pid), 'SIGKILL');
    await expect.poll(programs, { timeout: WAIT_MS }).toEqual([]);
  });

  test.skipIf(whyMissing('supervisor') !== null)(
    'a program of supervisord has a network program too, which ends with it',
    async () => {
      await driver.close();
      driver = fixture.driver({ spares: 0 });
      const supervisord = await TestSupervisord.start();
      const under = new SupervisorFixture(supervisord);
      try {
        const supervised = under.driver({ network: OWN, spares: 0 });
        const { facts, attempt, reach } = await start({}, supervised, under.spec());
        expect(facts.isolation).toContain('net');
        expect(await attempt('resolver')).toContain(`nameserver ${BEGINNING}3\n`);
        expect(await reach([['tcp', '169.254.169.254', 80]], ANSWER_SECONDS)).toEqual(['PermissionError']);
        await expect.poll(programs, { timeout: WAIT_MS }).toHaveLength(1);
      } finally {
        await under.dispose();
        await supervisord.dispose();
      }
      await expect.poll(programs, { timeout: WAIT_MS }).toEqual([]);
    },
  );

  test('a sandbox’s network outlives its server and its zygote', async () => {
    const { reach, handle } = await start();
    const zygotes = zygotePids(fixture.dataDir);
    expect(zygotes).not.toEqual([]);
    for (const pid of zygotes) process.kill(pid, 'SIGKILL');
    await driver.close();
    driver = fixture.driver();
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
    if (OUTSIDE === undefined) return;
    const { port } = await listenOn(OUTSIDE);
    expect(await reach([['tcp', OUTSIDE, port]], ANSWER_SECONDS)).toEqual(['ok']);
  });
});

/** Returns the forwarding programs of this file's sandboxes. */
function programs(): readonly number[] {
  return processes(argv => /\/(pasta|slirp4netns)$/.test(argv[0] ?? '') && argv.some(text => text.includes(BEGINNING)));
}

function processes(isWanted: (argv: readonly string[]) => boolean): readonly number[] {
  return readdirSync('/proc').flatMap(pid => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      return isWanted(readFileSync(`/proc/${pid}/cmdline`, 'latin1').split('\0')) ? [Number(pid)] : [];
    } catch {
      return [];
    }
  });
}
