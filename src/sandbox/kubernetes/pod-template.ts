import type {
  V1Affinity,
  V1Container,
  V1EnvVar,
  V1PodSpec,
  V1SecurityContext,
  V1Toleration,
  V1TopologySpreadConstraint,
  V1Volume,
  V1VolumeMount,
} from '@kubernetes/client-node';
import type { PortSpec } from '../../core/port.ts';
import { parseQuantity } from '../../core/quantity.ts';
import { LABEL_INSTALLATION, secretName } from './labels.ts';
import { MANAGER_PORT, POD } from './manager.ts';

/** The container of the user's code, in which the manager is pid 1. */
export const MAIN_CONTAINER = 'instance';
/** The container that brings the manager. */
export const INIT_CONTAINER = 'rookery-install';
/** Of a custom image: the manager stands beside it. */
export const MANAGER_CONTAINER = 'rookery';

/** Code that is put in at a claim goes here, or below it. */
export const CODE_DIR = '/opt/function';
/** The user of our image. */
const OUR_UID = 10_001;
/**
 * What a manager needs that becomes the user of an image of somebody else's: it makes that user's home, looks into code that only the user may
 * read, and ends what it runs. Nothing of it is left to the code.
 */
const ROOT_CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'KILL', 'SETGID', 'SETUID'];
/** The pod's key, for a moment, and sockets. */
const RUN_LIMIT = '8Mi';
/** The directory in a volume that is the manager's user's. */
const OWN = 'own';
const INIT_CPU = '1000m';
const INIT_MEMORY = '128Mi';
/** The time between the signal that asks the manager to end and the one that ends it. */
const END_SECONDS = 5;
/** How long the manager of a pool's pod may take to listen. */
const START_SECONDS = 60;

export interface Resources {
  readonly requests: Readonly<Record<string, string>>;
  readonly limits: Readonly<Record<string, string>>;
}

export interface PodTemplateOptions {
  readonly installationId: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** Where the code runs. */
  readonly image: string;
  /** Of the init container: ours, or one made from it. */
  readonly initImage: string;
  /**
   * `ours`: our image or one that is used like it: nobody is root, and the root file system is read-only. `foreign`: the manager is root, and
   * becomes the user of the order. `beside`: the image runs its own command, with the manager in a container of its own.
   */
  readonly mode: 'ours' | 'foreign' | 'beside';
  readonly resources: Resources;
  /** `Never`: it is made for one instance. */
  readonly restartPolicy: 'Never' | 'Always';
  /** Of the main container. The code of an instance does not get them: its order has its own. */
  readonly env?: readonly V1EnvVar[];
  readonly ports?: readonly PortSpec[];
  readonly volumes?: readonly V1Volume[];
  readonly volumeMounts?: readonly V1VolumeMount[];
  /** Directories that are empty and the manager's user's, beside those of every pod. */
  readonly emptyDirs?: readonly string[];
  readonly nodeSelector?: Readonly<Record<string, string>> | null;
  readonly runtimeClassName?: string;
  readonly tolerations?: readonly V1Toleration[];
  readonly affinity?: V1Affinity;
  readonly topologySpreadConstraints?: readonly V1TopologySpreadConstraint[];
}

export interface PodTemplate {
  readonly metadata: { readonly labels: Record<string, string>; readonly annotations: Record<string, string> };
  readonly spec: V1PodSpec;
}

/** The pod in which a manager runs, for one instance or as one of a pool's. */
export function podTemplate(options: PodTemplateOptions): PodTemplate {
  const { installationId, labels, annotations = {}, mode, volumes = [], nodeSelector, runtimeClassName = '' } = options;
  const { tolerations = [], affinity, topologySpreadConstraints = [] } = options;
  const mounts = mountsOf(options);
  const manager = managerContainer(
    options,
    mounts.map(({ mount }) => mount),
  );
  const made = mounts.flatMap(({ inInit }) => inInit ?? []);
  return {
    metadata: { labels: { ...labels, [LABEL_INSTALLATION]: installationId }, annotations: { ...annotations } },
    spec: {
      restartPolicy: options.restartPolicy,
      terminationGracePeriodSeconds: END_SECONDS,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      securityContext: { seccompProfile: { type: 'RuntimeDefault' } },
      initContainers: [initContainer(options, made)],
      containers: mode === 'beside' ? [customContainer(options), manager] : [manager],
      volumes: [
        { name: 'rookery', emptyDir: {} },
        { name: 'rookery-run', emptyDir: { medium: 'Memory', sizeLimit: RUN_LIMIT } },
        { name: 'rookery-secret', secret: { secretName: secretName(installationId), defaultMode: 0o444 } },
        ...mounts.map(({ volume }) => volume),
        ...volumes,
      ],
      ...(nodeSelector == null ? {} : { nodeSelector: { ...nodeSelector } }),
      ...(runtimeClassName === '' ? {} : { runtimeClassName }),
      ...(tolerations.length === 0 ? {} : { tolerations: [...tolerations] }),
      ...(affinity === undefined ? {} : { affinity }),
      ...(topologySpreadConstraints.length === 0 ? {} : { topologySpreadConstraints: [...topologySpreadConstraints] }),
    },
  };
}

/** Requests that are limits too. */
export function resourcesOf({ cpuMillis, memoryMb }: { cpuMillis: number; memoryMb: number }): Resources {
  const amounts = { cpu: `${cpuMillis}m`, memory: `${memoryMb}Mi` };
  return { requests: amounts, limits: amounts };
}

/** Copies the manager, and makes the pod's key of the secret, which nobody else in the pod sees. */
function initContainer(
  { initImage, resources, mode }: PodTemplateOptions,
  made: readonly V1VolumeMount[],
): V1Container {
  return {
    name: INIT_CONTAINER,
    image: initImage,
    imagePullPolicy: 'IfNotPresent',
    command: [...POD.installCommand],
    env: [
      { name: POD.uidVariable, valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } },
      ...(made.length === 0
        ? []
        : [{ name: POD.directoriesVariable, value: made.map(({ mountPath }) => `${mountPath}/${OWN}`).join(':') }]),
    ],
    // A copy is quick, whatever the instance may use.
    resources: {
      requests: { ...resources.requests },
      limits: {
        ...resources.limits,
        cpu: larger('cpu', resources.limits.cpu, INIT_CPU),
        memory: larger('memory', resources.limits.memory, INIT_MEMORY),
      },
    },
    securityContext: confined(mode === 'foreign' ? 'root' : 'ours', true, []),
    volumeMounts: [
      { name: 'rookery', mountPath: POD.home },
      { name: 'rookery-run', mountPath: POD.run },
      { name: 'rookery-secret', mountPath: POD.secretDir, readOnly: true },
      ...made,
    ],
  };
}

function managerContainer(options: PodTemplateOptions, mounts: readonly V1VolumeMount[]): V1Container {
  const { mode, image, initImage, env = [], volumeMounts = [] } = options;
  const isBeside = mode === 'beside';
  return {
    name: isBeside ? MANAGER_CONTAINER : MAIN_CONTAINER,
    image: isBeside ? initImage : image,
    imagePullPolicy: 'IfNotPresent',
    command: [...POD.managerCommand],
    ...(isBeside ? { env: [{ name: 'PYTHONUNBUFFERED', value: '1' }] } : { env: [...env] }),
    ...(isBeside ? {} : ports(options)),
    // Beside an image the manager has little to do, and it is not what the instance asked for.
    resources: isBeside ? { requests: { cpu: '10m', memory: '32Mi' }, limits: { memory: '128Mi' } } : limits(options),
    // A pod of a pool that is ready can be claimed: its manager listens. One that is made for its instance is asked directly, and sooner.
    ...(options.restartPolicy === 'Always' && {
      startupProbe: { tcpSocket: { port: MANAGER_PORT }, periodSeconds: 1, failureThreshold: START_SECONDS },
    }),
    securityContext: mode === 'foreign' ? confined('root', false, ROOT_CAPABILITIES) : confined('ours', true, []),
    volumeMounts: [
      { name: 'rookery', mountPath: POD.home, readOnly: true },
      { name: 'rookery-run', mountPath: POD.run },
      ...mounts,
      ...(isBeside ? [] : volumeMounts),
    ],
  };
}

/** With the command of its image, as the user of its image. */
function customContainer(options: PodTemplateOptions): V1Container {
  const { image, env = [], volumeMounts = [] } = options;
  return {
    name: MAIN_CONTAINER,
    image,
    imagePullPolicy: 'IfNotPresent',
    env: [...env],
    ...ports(options),
    resources: limits(options),
    securityContext: {
      allowPrivilegeEscalation: false,
      capabilities: { drop: ['ALL'], add: ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'KILL', 'SETGID', 'SETUID'] },
    },
    volumeMounts: [...volumeMounts],
  };
}

function ports({ ports: asked = [] }: PodTemplateOptions): Pick<V1Container, 'ports'> {
  if (asked.length === 0) return {};
  return { ports: asked.map(({ protocol, port }) => ({ containerPort: port, protocol: protocol.toUpperCase() })) };
}

function limits({ resources }: PodTemplateOptions): NonNullable<V1Container['resources']> {
  return { requests: { ...resources.requests }, limits: { ...resources.limits } };
}

/** `root`: the manager becomes the user of its order. Else it is the user of our image, and stays it. */
function confined(mode: 'root' | 'ours', readOnlyRootFilesystem: boolean, added: readonly string[]): V1SecurityContext {
  const isRoot = mode === 'root';
  const uid = isRoot ? 0 : OUR_UID;
  return {
    runAsUser: uid,
    runAsGroup: uid,
    ...(isRoot ? {} : { runAsNonRoot: true }),
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem,
    capabilities: { drop: ['ALL'], ...(added.length === 0 ? {} : { add: [...added] }) },
  };
}

/**
 * Directories that can be written to: the root file system cannot. Those that the pod mounts itself are left to it. The root of a volume is root's,
 * whoever the pod runs as: what was asked for is a directory in it, which the init container makes.
 */
function mountsOf({ mode, emptyDirs = [], volumeMounts = [] }: PodTemplateOptions): readonly {
  readonly volume: V1Volume;
  readonly mount: V1VolumeMount;
  readonly inInit?: V1VolumeMount;
}[] {
  const usual = mode === 'foreign' ? [] : ['/tmp', CODE_DIR];
  const taken = new Set(volumeMounts.map(({ mountPath }) => mountPath));
  const paths = [...new Set([...usual, ...emptyDirs])].filter(path => !taken.has(path));
  // What is below another one is made there when it is put there, and belongs to the user.
  return paths
    .filter(path => !paths.some(other => path.startsWith(`${other}/`)))
    .map((mountPath, index) => {
      const name = `rookery-dir-${index}`;
      const volume = { name, emptyDir: {} };
      if (usual.includes(mountPath)) return { volume, mount: { name, mountPath } };
      return {
        volume,
        mount: { name, mountPath, subPath: OWN },
        inInit: { name, mountPath: `${POD.directories}/${index}` },
      };
    });
}

function larger(resource: 'cpu' | 'memory', asked: string | undefined, least: string): string {
  if (asked === undefined) return least;
  // What is too large to be read is larger.
  return (parseQuantity(resource, asked) ?? Number.POSITIVE_INFINITY) > (parseQuantity(resource, least) ?? 0)
    ? asked
    : least;
}
