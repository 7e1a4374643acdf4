import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Config } from '../config/config.ts';
import type { Environment } from '../core/environment.ts';
import { runsImages, runsInCluster } from '../core/sandbox-types.ts';
import type { Drivers } from '../sandbox/drivers.ts';
import type { Finding } from './doctor-checks.ts';

/** What works on this machine: for the command, and for the service that runs here. */

/** `running`: the drivers of the service that asks; null: of a service that would be started here. */
export async function findAll(
  config: Config,
  environment: Environment,
  running: Drivers | null,
): Promise<readonly Finding[]> {
  const [checks, { tracesUrl }] = await Promise.all([import('./doctor-checks.ts'), import('../configured-parts.ts')]);
  const findings = await Promise.all([
    checks.checkNode(process.version),
    checks.checkDataDir(config.dataDir),
    checkStorage(config),
    ...(config.frontend.enabled ? [checks.checkPort('frontend', config.host, config.port)] : []),
    ...(config.meta.enabled ? [checks.checkPort('meta_service', config.metaHost, config.metaPort)] : []),
    checkPythons(config, environment),
    running === null ? probeDrivers(config, environment) : findingsOfDrivers(config, environment, running),
    checkCluster(config, environment),
    checks.checkCollector(tracesUrl(config)),
  ]);
  return findings.flat();
}

async function checkStorage({ storage }: Config): Promise<Finding> {
  const { checkDatabase, checkPostgres } = await import('./doctor-checks.ts');
  const { url, waitMs, poolSize } = storage;
  if (url === null) return checkDatabase((await import('../storage/database.ts')).openDatabase);
  const [{ probePostgres }, { placeOf }] = await Promise.all([
    import('../storage/postgres-stores.ts'),
    import('../storage/postgres-connections.ts'),
  ]);
  return checkPostgres(placeOf(url), () => probePostgres({ url, waitMs, poolSize }));
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
  const [{ createInstallation }, { Removals }, { SILENT }] = await Promise.all([
    import('../installation.ts'),
    import('../lib/removals.ts'),
    import('../telemetry/logger.ts'),
  ]);
  const dataDir = await mkdtemp(join(tmpdir(), 'rookery-doctor-'));
  const removals = new Removals({ directory: join(dataDir, 'leftovers'), report: () => undefined });
  const { drivers } = await createInstallation({ ...config, dataDir }, { environment, removals, logger: SILENT });
  try {
    return await findingsOfDrivers(config, environment, drivers);
  } finally {
    await drivers.close();
    removals.close();
    await rm(dataDir, { recursive: true, force: true });
  }
}

async function findingsOfDrivers(
  config: Config,
  environment: Environment,
  drivers: Drivers,
): Promise<readonly Finding[]> {
  const [{ driverFinding }, { CHOSEN_NETWORK_SENTENCE }, { runtimeFindings }, jdks, nodes] = await Promise.all([
    import('./doctor-checks.ts'),
    import('../sandbox/host/network.ts'),
    import('./doctor-runtimes.ts'),
    import('../runtime/jdks.ts'),
    import('../runtime/nodes.ts'),
  ]);
  const probes = await Promise.all(drivers.names.map(async name => [name, await drivers.probe(name)] as const));
  const chosen = config.process.network === 'shared' ? [CHOSEN_NETWORK_SENTENCE] : [];
  const ofProcess = new Map(probes).get('process');
  return [
    ...probes.map(([name, probe]) => driverFinding(name, probe, config, runsImages(name) ? [] : chosen)),
    ...runtimeFindings({
      jdk: version => jdks.findJdk(version, environment),
      jar: jdks.findRuntimeJar(),
      node: version => nodes.findNode(version, environment),
      isolation: ofProcess?.available ? ofProcess.capabilities.isolation : null,
      ofImages: probes.filter(([name, probe]) => probe.available && runsImages(name)).map(([name]) => name),
    }),
  ];
}

/** Nothing, where no cluster is configured: the row of the sandbox says so. */
async function checkCluster(config: Config, environment: Environment): Promise<readonly Finding[]> {
  const [{ kubernetesFindings }, { diagnose }, { VERSION }] = await Promise.all([
    import('./doctor-kubernetes.ts'),
    import('../sandbox/kubernetes/diagnosis.ts'),
    import('../version.ts'),
  ]);
  const { kubeconfig, namespace, image, pod } = config.kubernetes;
  const isNeeded = runsInCluster(config.defaultExecutor);
  try {
    const facts = await diagnose({ kubeconfig, namespace, pod, image: image ?? `rookery:${VERSION}`, environment });
    return kubernetesFindings(facts, { isNeeded, image });
  } catch (error) {
    if (!isNeeded && kubeconfig === null) return [];
    const { messageOf } = await import('../core/error.ts');
    return [{ name: 'cluster', status: isNeeded ? 'fail' : 'warn', text: 'cannot be used', notes: [messageOf(error)] }];
  }
}
