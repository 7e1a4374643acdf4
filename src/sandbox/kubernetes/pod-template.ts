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
import type { PortSpec } from '../../core/instance.ts';
import { parseQuantity } from '../../core/kubernetes-formats.ts';
import { LABEL_INSTALLATION } from './labels.ts';
import { MANAGER_PORT, POD } from './manager.ts';

/** Container of the user's code, in which the manager is pid 1. */
export const MAIN_CONTAINER = 'instance';
/** Container that installs the manager. */
export const INIT_CONTAINER = 'rookery-install';
/** Container with the pool's own image, which brings the manager's files instead. */
const FILES_CONTAINER = 'rookery-files';
/** Container of the manager when a custom image runs in the main container. */
export const MANAGER_CONTAINER = 'rookery';

/** Directory for code that is put in at a claim; code is there or below it. */
export const CODE_DIR = '/opt/function';
/** Uid of the user of Rookery's image. */
const OUR_UID = 10_001;
/**
 * Capabilities of a manager that is root and becomes the user of a foreign image. The manager creates that
 * user's home, reads code that only the user may read, and ends processes. The code gets none of them.
 */
const ROOT_CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'KILL', 'SETGID', 'SETUID'];
/** Size limit of `run`, which briefly has the pod's key, and sockets. */
const RUN_LIMIT = '8Mi';
/** Directory in a volume that the manager's user owns. */
const OWN = 'own';
const INIT_CPU = '1000m';
const INIT_MEMORY = '128Mi';
/** `VOLUME` of deploy/Dockerfile. */
const IMAGE_VOLUME = '/var/lib/rookery';
/** Time between SIGTERM and SIGKILL for the manager of a pod. */
const END_SECONDS = 5;
/** Time limit for the manager of a pool's pod to listen. */
const START_SECONDS = 60;

export interface Resources {
  readonly requests: Readonly<Record<string, string>>;
  readonly limits: Readonly<Record<string, string>>;
}

export interface PodTemplateOptions {
  readonly installationId: string;
  /** Name of the installation's Secret. */
  readonly secretName: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  /** Image in which the code runs. */
  readonly image: string;
  /** Image of the installation. Only its init container gets the installation's Secret. */
  readonly ourImage: string;
  /**
   * Image that brings the manager's files, in an init container without a Secret. Absent or empty: `ourImage`
   * does.
   */
  readonly initImage?: string;
  /**
   * Arrangement of manager and code in the pod:
   * - `ours`: Rookery's image, or one that is used like it; no process is root and the root file system is
   *   read-only
   * - `foreign`: the manager is root and becomes the user of the order
   * - `beside`: the image runs its own command, with the manager in a separate container
   */
  readonly mode: 'ours' | 'foreign' | 'beside';
  readonly resources: Resources;
  /** `Never` for a pod that is created for one instance. */
  readonly restartPolicy: 'Never' | 'Always';
  /** Variables of the main container. The code of an instance does not get them; its order has its own. */
  readonly env?: readonly V1EnvVar[];
  readonly ports?: readonly PortSpec[];
  readonly volumes?: readonly V1Volume[];
  readonly volumeMounts?: readonly V1VolumeMount[];
  /** Empty directories that the manager's user owns, in addition to those of every pod. */
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

/** Returns the template of a pod with a manager, for one instance or for a pool. */
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
      initContainers: [...filesContainers(options), initContainer(options, made)],
      containers: mode === 'beside' ? [customContainer(options), manager] : [manager],
      volumes: [
        { name: 'rookery', emptyDir: {} },
        { name: 'rookery-run', emptyDir: { medium: 'Memory', sizeLimit: RUN_LIMIT } },
        { name: 'rookery-secret', secret: { secretName: options.secretName, defaultMode: 0o444 } },
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

/** Returns resources whose limits equal their requests. */
export function resourcesOf({ cpuMillis, memoryMb }: { cpuMillis: number; memoryMb: number }): Resources {
  const amounts = { cpu: `${cpuMillis}m`, memory: `${memoryMb}Mi` };
  return { requests: amounts, limits: amounts };
}

/**
 * Returns the container in which the pool's image writes the manager's files. The container mounts no Secret
 * and no directory of keys.
 */
function filesContainers(options: PodTemplateOptions): readonly V1Container[] {
  const { mode } = options;
  const image = filesImage(options);
  if (image === null) return [];
  return [
    {
      name: FILES_CONTAINER,
      image,
      imagePullPolicy: 'IfNotPresent',
      command: [...POD.filesCommand],
      resources: initResources(options),
      securityContext: confined(mode === 'foreign' ? 'root' : 'ours', true, []),
      volumeMounts: [{ name: 'rookery', mountPath: POD.home }],
    },
  ];
}

/** Returns the image that brings the manager's files; null: the installation's image does. */
function filesImage({ initImage = '', ourImage }: PodTemplateOptions): string | null {
  return initImage === '' || initImage === ourImage ? null : initImage;
}

/** Raises the limits, so that the copy is fast even for small instances. */
function initResources({ resources }: PodTemplateOptions): NonNullable<V1Container['resources']> {
  return {
    requests: { ...resources.requests },
    limits: {
      ...resources.limits,
      cpu: larger('cpu', resources.limits.cpu, INIT_CPU),
      memory: larger('memory', resources.limits.memory, INIT_MEMORY),
    },
  };
}

/**
 * Returns the container that copies the manager and derives the pod's key from the Secret. No other container
 * mounts the Secret.
 */
function initContainer(options: PodTemplateOptions, made: readonly V1VolumeMount[]): V1Container {
  const { ourImage, mode } = options;
  return {
    name: INIT_CONTAINER,
    image: ourImage,
    imagePullPolicy: 'IfNotPresent',
    command: filesImage(options) === null ? [...POD.installCommand] : [...POD.keyCommand],
    env: [
      { name: POD.uidVariable, valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } },
      ...(made.length === 0
        ? []
        : [{ name: POD.directoriesVariable, value: made.map(({ mountPath }) => `${mountPath}/${OWN}`).join(':') }]),
    ],
    resources: initResources(options),
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
  const { mode, image, ourImage, env = [], volumeMounts = [] } = options;
  const isBeside = mode === 'beside';
  return {
    name: isBeside ? MANAGER_CONTAINER : MAIN_CONTAINER,
    image: isBeside ? ourImage : image,
    imagePullPolicy: 'IfNotPresent',
    command: [...POD.managerCommand],
    ...(isBeside ? { env: [{ name: 'PYTHONUNBUFFERED', value: '1' }] } : { env: [...env] }),
    ...(isBeside ? {} : ports(options)),
    // Next to an image the manager has little to do, and the instance did not ask for its resources.
    resources: isBeside ? { requests: { cpu: '10m', memory: '32Mi' }, limits: { memory: '128Mi' } } : limits(options),
    // A ready pod of a pool can be claimed, so its manager must listen. The starter polls the manager of
    // other pods, which is faster.
    ...(options.restartPolicy === 'Always' && {
      startupProbe: { tcpSocket: { port: MANAGER_PORT }, periodSeconds: 1, failureThreshold: START_SECONDS },
    }),
    securityContext: mode === 'foreign' ? confined('root', false, ROOT_CAPABILITIES) : confined('ours', true, []),
    volumeMounts: [
      { name: 'rookery', mountPath: POD.home, readOnly: true },
      { name: 'rookery-run', mountPath: POD.run },
      ...(mode === 'foreign' ? [] : closedImageVolume([...mounts, ...(isBeside ? [] : volumeMounts)])),
      ...mounts,
      ...(isBeside ? [] : volumeMounts),
    ],
  };
}

/**
 * Covers the volume that Rookery's image declares for a server's data. Otherwise the container engine mounts
 * a writable directory there. Data that one instance writes into it would still exist for the pod's next
 * instance.
 */
function closedImageVolume(others: readonly V1VolumeMount[]): readonly V1VolumeMount[] {
  if (others.some(({ mountPath }) => `${mountPath}/`.startsWith(`${IMAGE_VOLUME}/`))) return [];
  return [{ name: 'rookery', mountPath: IMAGE_VOLUME, readOnly: true }];
}

/** Returns the container of a custom image, with its own command and user. */
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

/**
 * Returns a restricted security context. `root`: the manager is root and becomes the user of its order.
 * `ours`: the manager stays the user of Rookery's image.
 */
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
 * Returns writable directories, because the root file system is read-only. Skips directories that the pod
 * mounts itself. Root owns the root of a volume in any case. The mounted directory is therefore a
 * subdirectory, which the init container creates.
 */
function mountsOf({ mode, emptyDirs = [], volumeMounts = [] }: PodTemplateOptions): readonly {
  readonly volume: V1Volume;
  readonly mount: V1VolumeMount;
  readonly inInit?: V1VolumeMount;
}[] {
  const usual = mode === 'foreign' ? [] : ['/tmp', CODE_DIR];
  const taken = new Set(volumeMounts.map(({ mountPath }) => mountPath));
  const paths = [...new Set([...usual, ...emptyDirs])].filter(path => !taken.has(path));
  // A directory below another one is created when code is put there, and belongs to the user.
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
  // A quantity too large to parse counts as infinite.
  return (parseQuantity(resource, asked) ?? Number.POSITIVE_INFINITY) > (parseQuantity(resource, least) ?? 0)
    ? asked
    : least;
}
