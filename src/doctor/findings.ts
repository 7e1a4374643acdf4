import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Config } from '../config/config.ts';
import type { Environment } from '../core/environment.ts';
import { runsImages, runsInCluster } from '../core/sandbox-types.ts';
import type { Drivers } from '../sandbox/drivers.ts';
import type { Finding } from './checks.ts';

/** Collects all findings about this machine, for the command and for the running service. */

/**
 * Returns all findings. `running`: the drivers of the running service; null: drivers are created and probed.
 */
export async function findAll(
  config: Config,
  environment: Environment,
  running: Drivers | null,
): Promise<readonly Finding[]> {
  const [checks, { tracesUrl }] = await Promise.all([import('./checks.ts'), import('../server/configured-parts.ts')]);
  const findings = await Promise.all([
    checks.checkNode(process.version),
    checks.checkDataDir(config.dataDir),
    checkStorage(config),
    ...(config.frontend.enabled ? [checks.checkPort('frontend', config.host, config.port)] : []),
    ...(config.meta.enabled ? [checks.checkPort('meta_service', config.metaHost, config.metaPort)] : []),
    checkPythons(config, environment),
    checkInstallers(config, environment),
    running === null ? probeDrivers(config, environment) : findingsOfDrivers(config, environment, running),
    checkCluster(config, environment),
    checks.checkCollector(tracesUrl(config)),
    findLost(config, environment),
  ]);
  return findings.flat();
}

async function checkStorage({ storage }: Config): Promise<Finding> {
  const { checkDatabase, checkPostgres } = await import('./checks.ts');
  const { url, waitMs, poolSize } = storage;
  if (url === null) return checkDatabase((await import('../storage/database.ts')).openDatabase);
  const [{ probePostgres }, { placeOf }] = await Promise.all([
    import('../storage/postgres/postgres-stores.ts'),
    import('../storage/postgres/postgres-connections.ts'),
  ]);
  return checkPostgres(placeOf(url), () => probePostgres({ url, waitMs, poolSize }));
}

async function checkPythons(config: Config, environment: Environment): Promise<Finding> {
  const [{ pythonFinding }, { Interpreters }] = await Promise.all([
    import('./checks.ts'),
    import('../sandbox/host/interpreters.ts'),
  ]);
  const interpreters = new Interpreters(config.process.pythons, environment);
  return pythonFinding(version => interpreters.find(version), config);
}

const VENV_TIMEOUT_MS = 10_000;

/** Checks that dependencies of code can be installed. Installs nothing and contacts no index. */
async function checkInstallers({ process: { pythons } }: Config, environment: Environment): Promise<Finding> {
  const [{ installersFinding }, { PYTHON_VERSIONS }, { Interpreters }, { findNpm, findUv }, nodes] = await Promise.all([
    import('./runtimes.ts'),
    import('./checks.ts'),
    import('../sandbox/host/interpreters.ts'),
    import('../builds/tools.ts'),
    import('../runtime/nodes.ts'),
  ]);
  const interpreters = new Interpreters(pythons, environment);
  const withoutVenv = await Promise.all(
    PYTHON_VERSIONS.map(async version => {
      const found = await interpreters.find(version).catch(() => null);
      return found === null || (await hasVenv(found.path)) ? [] : [version];
    }),
  );
  const found = ['24', '22', '20'].map(version => nodes.findNode(version, environment));
  const node = found.find(each => 'path' in each)?.path ?? process.execPath;
  // A given registry keeps `findNpm` from running npm to read its configuration.
  const npm = await findNpm(node, environment, { pythonIndex: '', npmRegistry: 'none' });
  const hasUv = (await findUv(environment)) !== null;
  return installersFinding({ pythonsWithoutVenv: withoutVenv.flat(), hasUv, hasNpm: npm !== null });
}

async function hasVenv(python: string): Promise<boolean> {
  const { execFile } = await import('../lib/child-process.ts');
  return promisify(execFile)(python, ['-c', 'import ensurepip, venv'], { timeout: VENV_TIMEOUT_MS, cwd: '/' }).then(
    () => true,
    () => false,
  );
}

/** Probes new drivers in a temporary data directory, apart from a running service and its zygotes. */
async function probeDrivers(config: Config, environment: Environment): Promise<readonly Finding[]> {
  const [{ createInstallation }, { Removals }, { SILENT }] = await Promise.all([
    import('../server/installation.ts'),
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
    import('./checks.ts'),
    import('../sandbox/host/network.ts'),
    import('./runtimes.ts'),
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

/** Returns no finding without a configured cluster, because the finding of the sandbox already says so. */
async function checkCluster(config: Config, environment: Environment): Promise<readonly Finding[]> {
  const [{ kubernetesFindings }, { diagnose }, { installationImage }, { allowedPoolImages }, { VERSION }] =
    await Promise.all([
      import('./kubernetes.ts'),
      import('../sandbox/kubernetes/diagnosis.ts'),
      import('../sandbox/kubernetes/definition.ts'),
      import('../server/pool-control.ts'),
      import('../version.ts'),
    ]);
  const { kubeconfig, namespace, secret, image, pod } = config.kubernetes;
  const pools = config.auth === null ? null : { tenants: config.pools.tenants, images: allowedPoolImages(config) };
  const isNeeded = runsInCluster(config.defaultExecutor);
  try {
    const facts = await diagnose({
      ...{ kubeconfig, namespace, secret, pod, environment },
      image: installationImage(image, VERSION),
    });
    return kubernetesFindings(facts, { isNeeded, image, pools });
  } catch (error) {
    if (!isNeeded && kubeconfig === null) return [];
    const { messageOf } = await import('../core/error.ts');
    return [{ name: 'cluster', status: isNeeded ? 'fail' : 'warn', text: 'cannot be used', notes: [messageOf(error)] }];
  }
}

/**
 * Finds sandboxes whose data directory was removed, which no service finds again. Returns no finding if there
 * are none.
 */
async function findLost(config: Config, environment: Environment): Promise<readonly Finding[]> {
  const { lostSandboxes } = await import('../sandbox/lost-sandboxes.ts');
  const notes = await lostSandboxes(config.docker.host, environment);
  if (notes.length === 0) return [];
  const text = 'sandboxes run whose data directory was removed';
  return [{ name: 'left over', status: 'warn', text, notes: [...notes, 'rookery stop --all ends them.'] }];
}
