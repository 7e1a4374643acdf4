/** Labels on all containers and networks of Rookery. Several servers may share one daemon. */
export const LABEL_INSTALLATION = 'rookery.installation';
export const LABEL_TENANT = 'rookery.tenant';
export const LABEL_INSTANCE = 'rookery.instance';
