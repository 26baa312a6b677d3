"""Why a search found nothing, or not what somebody expected."""
