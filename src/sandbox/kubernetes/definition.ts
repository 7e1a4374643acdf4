import { optionalPath, optionalText, type SettingValues } from '../../core/setting.ts';
import type { SandboxDriver } from '../driver.ts';
import type { DriverContext, DriverDefinition } from '../driver-definition.ts';
import { POD_SETTINGS, type PodSettings } from './pod-settings.ts';

interface KubernetesSettings {
  readonly kubernetes: SettingValues<typeof SETTINGS> & { readonly pod: PodSettings };
}

/** A label of RFC 1123, as a namespace is one. */
const NAMESPACE = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

const SETTINGS = {
  kubeconfig: optionalPath({
    default: null,
    doc: 'The kubeconfig file of the cluster; its current context counts. Unset, it is the cluster that the service itself runs in, by the service account of its pod; elsewhere there is none.',
    example: '/etc/rookery/kubeconfig',
  }),
  namespace: optionalText({
    default: null,
    defaultText: 'that of the context or of the service account, else `default`',
    pattern: NAMESPACE,
    shape: 'the name of a namespace of Kubernetes',
    doc: 'Where pods, pools and their secret are. Nothing outside of it is touched.',
    example: 'rookery',
  }),
  image: optionalText({
    default: null,
    defaultText: '`rookery:<version>`',
    pattern: /^[A-Za-z0-9][A-Za-z0-9._\-/:@]{0,199}$/,
    shape: 'the name of an image of at most 200 characters',
    doc: 'The image of `deploy/Dockerfile`: pods of their own get the runtime from it, and pools use it unless they name another. It is pulled when a node does not have it (`IfNotPresent`).',
    example: 'registry.example.com/rookery:0.1.0',
  }),
} as const;

export const KUBERNETES = {
  rootfs: 'image',
  isCluster: true,
  settings: { ...SETTINGS, ...POD_SETTINGS },
  async create({ settings, version, ...context }: DriverContext<KubernetesSettings>): Promise<SandboxDriver> {
    const { KubernetesDriver } = await import('./driver.ts');
    const { kubeconfig, namespace, image, pod } = settings.kubernetes;
    return KubernetesDriver.open({ ...context, kubeconfig, namespace, pod, image: image ?? `rookery:${version}` });
  },
} as const satisfies DriverDefinition;
