import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import type { Config } from '../config/config.ts';
import type { Environment } from '../core/environment.ts';
import { runsImages } from '../core/sandbox-types.ts';
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
  const findings = await withSpinner(io, 'looking at this machine', () => findAll(config, io.environment));
  const hasFailed = findings.some(finding => finding.status === 'fail');
  if (options.json === true) printJson(io, { ok: !hasFailed, findings });
  else print(io, findings);
  return hasFailed ? EXIT.failure : EXIT.ok;
}

async function findAll(config: Config, environment: Environment): Promise<readonly Finding[]> {
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
    checkPythons(config, environment),
    probeDrivers(config, environment),
  ]);
  return findings.flat();
}

async function checkPythons(config: Config, environment: Environment): Promise<Finding> {
  const [{ pythonFinding }, { Interpreters }] = await Promise.all([
    import('./doctor-checks.ts'),
    import('../sandbox/host/interpreters.ts'),
  ]);
  const interpreters = new Interpreters(config.process.pythons, environment);
  return pythonFinding(version => interpreters.find(version), config);
}

/** In a data directory of their own, so that a running service and its zygotes are left alone. */
async function probeDrivers(config: Config, environment: Environment): Promise<readonly Finding[]> {
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
  const { drivers } = await createInstallation(
    { ...config, dataDir },
    { environment, removals, logger: SILENT, onlyProbed: true },
  );
  try {
    const probes = await Promise.all(drivers.names.map(async name => [name, await drivers.probe(name)] as const));
    const chosen = config.process.network === 'shared' ? [CHOSEN_NETWORK_SENTENCE] : [];
    const ofProcess = new Map(probes).get('process');
    return [
      ...probes.map(([name, probe]) => driverFinding(name, probe, config, runsImages(name) ? [] : chosen)),
      ...runtimeFindings({
        jdk: version => jdks.findJdk(version, environment),
        jar: jdks.findRuntimeJar(),
        isolation: ofProcess?.available ? ofProcess.capabilities.isolation : null,
        ofImages: probes.filter(([name, probe]) => probe.available && runsImages(name)).map(([name]) => name),
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
