import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import { addConfigFlags } from './config-flags.ts';
import type { Finding } from './doctor-checks.ts';
import { EXIT } from './exit.ts';
import type { Context, Io } from './io.ts';
import { coloured, printJson, withSpinner } from './print.ts';
import { loadConfigOrExplain } from './serve.ts';

export function register(program: Command, context: Context): void {
  const command = program
    .command('doctor')
    .summary('say what works on this machine')
    .description(
      'Tries everything that the service needs on this machine, with the configuration that serve would have, and says what is missing\n' +
        'and how to get it. It changes nothing. The exit code is 1 when the service cannot work here.',
    )
    .option('--json', 'print JSON')
    .action(async options => {
      context.exitCode = await examine(context.io, options);
    });
  addConfigFlags(command);
}

async function examine(io: Io, options: Readonly<Record<string, unknown>>): Promise<number> {
  const config = await loadConfigOrExplain(io, options);
  const findings = await withSpinner(io, 'looking at this machine', () => findAll(config));
  const hasFailed = findings.some(finding => finding.status === 'fail');
  if (options.json === true) printJson(io, { ok: !hasFailed, findings });
  else print(io, findings);
  return hasFailed ? EXIT.failure : EXIT.ok;
}

async function findAll(config: Config): Promise<readonly Finding[]> {
  const [checks, { openDatabase }] = await Promise.all([
    import('./doctor-checks.ts'),
    import('../storage/database.ts'),
  ]);
  const findings = await Promise.all([
    checks.checkNode(process.version),
    checks.checkDataDir(config.dataDir),
    checks.checkDatabase(openDatabase),
    ...(config.frontend.enabled ? [checks.checkPort('frontend', config.host, config.port)] : []),
    ...(config.meta.enabled ? [checks.checkPort('meta_service', config.metaHost, config.metaPort)] : []),
    checkPythons(config),
    probeDrivers(config),
  ]);
  return findings.flat();
}

async function checkPythons(config: Config): Promise<Finding> {
  const [{ pythonFinding }, { Interpreters }] = await Promise.all([
    import('./doctor-checks.ts'),
    import('../sandbox/host/interpreters.ts'),
  ]);
  const interpreters = new Interpreters(config.process.pythons);
  return pythonFinding(version => interpreters.find(version), config);
}

/** In a data directory of their own, so that a running service and its launchers are left alone. */
async function probeDrivers(config: Config): Promise<readonly Finding[]> {
  const [
    { driverFinding },
    { CHOSEN_NETWORK_SENTENCE },
    { runtimeFindings },
    jdks,
    { createInstallation },
    { Removals },
    { SILENT },
  ] = await Promise.all([
    import('./doctor-checks.ts'),
    import('../sandbox/host/network.ts'),
    import('./doctor-runtimes.ts'),
    import('../runtime/jdks.ts'),
    import('../installation.ts'),
    import('../lib/removals.ts'),
    import('../telemetry/logger.ts'),
  ]);
  const dataDir = await mkdtemp(join(tmpdir(), 'rookery-doctor-'));
  const removals = new Removals({ directory: join(dataDir, 'leftovers'), report: () => undefined });
  const process = { ...config.process, spares: 0, warm: [] };
  const supervisor = { ...config.supervisor, spares: 0 };
  const { drivers } = await createInstallation({ ...config, dataDir, process, supervisor }, removals, SILENT);
  try {
    const names = drivers.names.filter(name => name !== 'kubernetes');
    const probes = await Promise.all(names.map(async name => [name, await drivers.probe(name)] as const));
    const of = new Map(probes);
    const chosen = config.process.network === 'shared' ? [CHOSEN_NETWORK_SENTENCE] : [];
    const ofProcess = of.get('process');
    return [
      ...probes.map(([name, probe]) => driverFinding(name, probe, config, name === 'docker' ? [] : chosen)),
      ...runtimeFindings({
        jdk: jdks.findJdk,
        jar: jdks.findRuntimeJar(),
        isolation: ofProcess?.available ? ofProcess.capabilities.isolation : null,
        hasDocker: of.get('docker')?.available === true,
      }),
    ];
  } finally {
    await drivers.close();
    removals.close();
    await rm(dataDir, { recursive: true, force: true });
  }
}

const MARKS = { ok: ['green', 'ok  '], warn: ['yellow', 'warn'], fail: ['red', 'FAIL'] } as const;

function print(io: Io, findings: readonly Finding[]): void {
  const width = Math.max(...findings.map(finding => finding.name.length));
  for (const { name, status, text, notes } of findings) {
    const [style, mark] = MARKS[status];
    io.out.write(`${coloured(io, io.out, style, mark)}  ${name.padEnd(width)}  ${text}\n`);
    for (const note of notes) io.out.write(`${' '.repeat(width + 8)}${note}\n`);
  }
}
