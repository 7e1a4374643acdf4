import { execFileSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import net, { type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Channel } from '../../src/runtime/channel.ts';
import type { SandboxDriver, SandboxSpec } from '../../src/sandbox/driver.ts';
import { withDaemonsLeftAlone } from '../parts/docker.ts';
import { IMAGES } from '../parts/docker-images.ts';
import { DOCKER_START_MS, sharedDocker } from '../parts/docker-shared.ts';
import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { call, initOf } from '../suites/sandbox-driver.ts';
import { DockerFixture } from './docker-fixture.ts';
import { ProcessFixture } from './process-fixture.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

const WAIT_MS = 60_000;
/** Networks of the process sandboxes of both services. No other file uses this range. */
const NETWORK = { use: 'own', range: '10.221.0.0/16', setForwarding: true } as const;
const OTHER_NETWORK = { ...NETWORK, range: '10.222.0.0/16' };
const TCP_PORT = 7000;
const UDP_PORT = 7001;
/** Time after which an attempt counts as unanswered. */
const SILENT_SECONDS = 2;
const ANSWER_SECONDS = 20;
/** A link-local address of this machine, which only the host's own programs should reach. */
const LINK_LOCAL = `169.254.${randomInt(1, 255)}.${randomInt(1, 255)}`;
const METADATA = ['169.254.169.254', '100.100.100.200', '168.63.129.16', '192.0.0.192'];

interface Fixture {
  readonly codePath: string;
  spec(changes?: Partial<SandboxSpec>): SandboxSpec;
  driver(): SandboxDriver;
  dispose(): Promise<void>;
}

type Reachable = readonly [protocol: 'tcp' | 'udp', host: string, port: number];

/** A sandbox that listens on all its addresses. */
interface Party {
  readonly name: string;
  readonly address: string;
  reach(places: readonly Reachable[], seconds: number): Promise<readonly string[]>;
}

const outside = Object.values(networkInterfaces())
  .flat()
  .find(one => one?.family === 'IPv4' && !one.internal && !one.address.startsWith('10.'))?.address;

describeWith(['root', 'networks', 'supervisor', 'docker'], 'the networks of all sandboxes of a machine', () => {
  const ends: (() => unknown)[] = [];
  const parties: Party[] = [];
  let hostPort = 0;

  beforeAll(async () => {
    const { host } = await sharedDocker();
    const supervisord = await TestSupervisord.start();
    ends.push(() => supervisord.dispose());
    const listener = net.createServer(socket => socket.on('error', () => socket.destroy()).end('host'));
    ends.push(() => listener.close());
    execFileSync('ip', ['address', 'add', `${LINK_LOCAL}/32`, 'dev', 'lo']);
    ends.push(() => execFileSync('ip', ['address', 'del', `${LINK_LOCAL}/32`, 'dev', 'lo']));
    listener.listen(0, '0.0.0.0');
    await once(listener, 'listening');
    hostPort = (listener.address() as AddressInfo).port;

    const join = async (name: string, fixture: Fixture, tenants: readonly string[]) => {
      const driver = fixture.driver();
      ends.push(() => fixture.dispose());
      for (const tenant of tenants) {
        const spec = fixture.spec({ tenant });
        const started = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
        const channel = await Channel.open(started.endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
        ends.push(() => channel.close());
        const init = initOf(spec, fixture.codePath, 'network_calls.attempt');
        expect(await channel.initialize(init, AbortSignal.timeout(WAIT_MS))).toMatchObject({ ok: true });
        const ask = (what: string, args: object) => call(channel, { do: what, with: args });
        await ask('listen_everywhere', { tcp: TCP_PORT, udp: UDP_PORT });
        const reach = async (places: readonly Reachable[], seconds: number) =>
          (await ask('reach', { places, seconds })) as readonly string[];
        parties.push({ name: `${name} of ${tenant}`, address: started.facts.sandboxIp, reach });
      }
    };
    // The test creates networks, and no other daemon of this machine may start meanwhile.
    await withDaemonsLeftAlone(async () => {
      const supervisor = new SupervisorFixture(supervisord);
      await join('process', new ProcessFixture({ network: NETWORK }), ['one', 'one', 'two']);
      await join('docker', new DockerFixture(host, IMAGES.python), ['one', 'one', 'two']);
      await join('docker of another service', new DockerFixture(host, IMAGES.python), ['one']);
      await join('process of another service', new ProcessFixture({ network: OTHER_NETWORK }), ['one']);
      await join(
        'supervisor',
        {
          codePath: supervisor.codePath,
          spec: changes => supervisor.spec(changes),
          driver: () => supervisor.driver({ network: NETWORK }),
          dispose: () => supervisor.dispose(),
        },
        ['one', 'two'],
      );
    });
  }, DOCKER_START_MS + WAIT_MS);

  afterAll(async () => {
    for (const end of ends.reverse()) await end();
  });

  /** Returns the targets of `placesFor` that each sandbox reaches, as `from → place`. */
  const reached = async (placesFor: (from: Party) => readonly Reachable[], seconds: number) => {
    const found = await Promise.all(
      parties.map(async from => {
        const places = placesFor(from);
        const answers = await from.reach(places, seconds);
        return places.filter((_, index) => answers[index] === 'ok').map(place => `${from.name} → ${place.join(' ')}`);
      }),
    );
    return found.flat();
  };
  const portsOf = (address: string): readonly Reachable[] => [
    ['tcp', address, TCP_PORT],
    ['udp', address, UDP_PORT],
  ];

  test('a sandbox reaches its own ports', async () => {
    expect(await reached(({ address }) => [...portsOf('127.0.0.1'), ...portsOf(address)], ANSWER_SECONDS)).toHaveLength(
      parties.length * 4,
    );
  });

  test('a sandbox reaches no other: of its tenant or of another, of its driver or of another, of its service or of another', async () => {
    const others = (from: Party) => parties.filter(party => party !== from).flatMap(({ address }) => portsOf(address));
    expect(await reached(others, SILENT_SECONDS)).toEqual([]);
  });

  test('a sandbox does not reach a listener on the host’s loopback', async () => {
    expect(await reached(() => [['tcp', '127.0.0.1', hostPort]], SILENT_SECONDS)).toEqual([]);
  });

  test.skipIf(outside === undefined)(
    'a sandbox reaches a listener on all addresses of the host only at its own gateway',
    async () => {
      expect(await reached(() => [['tcp', String(outside), hostPort]], ANSWER_SECONDS)).toHaveLength(parties.length);
    },
  );

  test('a sandbox does not reach link-local addresses and the metadata of clouds', async () => {
    const metadata = METADATA.flatMap((host): Reachable[] => [
      ['tcp', host, 80],
      ['tcp', host, 53],
    ]);
    expect(await reached(() => [['tcp', LINK_LOCAL, hostPort], ...metadata], SILENT_SECONDS)).toEqual([]);
  });

  test('a sandbox does not reach anything over IPv6', async () => {
    const devices = readdirSync('/sys/class/net').filter(name => name.startsWith('rk'));
    const hosts = ['fe80::1%eth0', 'fd00:ec2::254', 'fe80::a9fe:a9fe%eth0'];
    expect(devices).not.toEqual([]);
    expect(await reached(() => hosts.map(host => ['tcp', host, 80]), SILENT_SECONDS)).toEqual([]);
  });

  test('only root on the host may open connections to sandboxes', () => {
    const script = `
import socket, sys
from concurrent.futures import ThreadPoolExecutor

def ask(address):
    try:
        socket.create_connection((address, ${TCP_PORT}), ${SILENT_SECONDS}).close()
        return address
    except OSError:
        return None

with ThreadPoolExecutor(len(sys.argv)) as threads:
    print([address for address in threads.map(ask, sys.argv[1:]) if address])
`;
    const addresses = parties.map(({ address }) => address);
    const as = (uid: number) =>
      execFileSync('/usr/bin/python3', ['-c', script, ...addresses], { uid, cwd: '/', encoding: 'utf8' }).trim();
    expect(as(65_534)).toBe('[]');
    expect(as(0)).toBe(`[${addresses.map(address => `'${address}'`).join(', ')}]`);
  });
});
